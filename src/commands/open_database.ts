import { backupSqlite } from "../adapters/sqlite/backup.ts";
import { LANES, migratePostgres, openPostgres } from "../adapters/postgres/database.ts";
import { scriptOf } from "../adapters/postgres/migrations.ts";
import { connect } from "../adapters/sqlite/connection.ts";
import { clearDamageMark } from "../adapters/sqlite/damage_mark.ts";
import { sqliteDatabase } from "../adapters/sqlite/database.ts";
import {
  type IntegrityProgress,
  type IntegrityResult,
  startIntegrityCheck,
} from "../adapters/sqlite/integrity_client.ts";
import { type LockWaitOptions, waitForLock } from "../adapters/sqlite/lock_wait.ts";
import { openSqliteReader } from "../adapters/sqlite/reader.ts";
import { openSqliteWorker, type SqliteWorkerOptions } from "../adapters/sqlite/worker_client.ts";
import type { Database } from "../database.ts";
import type { DatabaseLocation, PostgresLocation, SqliteLocation } from "./config.ts";
import { aborted } from "./waiting.ts";

/**
 * Opens a database for a server, and makes it where there is none: no call blocks the thread.
 *
 * @throws {DatabaseError} If it cannot be used; so do the other ways to open one.
 */
export function openForServing(location: DatabaseLocation, options: SqliteWorkerOptions): Promise<Database> {
  return location.adapter === "postgres" ? openPostgres(location.url) : openSqliteWorker(location.path, options);
}

/** How many batches a server's database commits at once. */
export function lanesOf({ adapter }: DatabaseLocation): number {
  return adapter === "postgres" ? LANES : 1;
}

/** How a command writes. */
export interface OpenForWritingOptions {
  /** Whether to make the database where there is none. @default {false} */
  readonly create?: boolean;
  /** Whether to begin SQLite's WAL anew, which others who write wait for. @default {false} */
  readonly beginWal?: boolean;
  /** How adding plants waits for a server's lock, which only SQLite has. @default as long as each call's own timeout */
  readonly lockWait?: LockWaitOptions;
}

/** Opens a database for a command that writes to it, perhaps beside a server. */
export async function openForWriting(
  location: DatabaseLocation,
  { create = false, beginWal = false, lockWait }: OpenForWritingOptions = {},
): Promise<Database> {
  const access = create ? "create" : "write";
  if (location.adapter === "postgres") return openPostgres(location.url, { access });
  const database = sqliteDatabase(connect(location.path, { access, beginWal }));
  return lockWait ? { ...database, plants: waitForLock(database.plants, lockWait) } : database;
}

/** Opens a database for a command that only reads it. Makes none, and changes none. */
export async function openForReading(location: DatabaseLocation): Promise<Pick<Database, "pages"> & AsyncDisposable> {
  if (location.adapter === "postgres") return openPostgres(location.url, { access: "read" });
  return openSqliteReader(location.path);
}

/**
 * Reads a whole database for damage. A file that is sound is no longer marked as damaged.
 *
 * @param stop Ends the check.
 */
export async function checkDatabase(
  { path }: SqliteLocation,
  stop: AbortSignal,
  onProgress: (progress: IntegrityProgress) => void,
): Promise<IntegrityResult> {
  const { result } = startIntegrityCheck(path, { background: false, onProgress });
  // SQLite may be in the middle of a step that takes seconds: the process ends without it.
  const ended = (await Promise.race([result, aborted(stop)])) ?? { type: "stopped" };
  if (ended.type === "sound") clearDamageMark(path);
  return ended;
}

/**
 * Copies a database into a new file.
 *
 * @param target The file, as an absolute path.
 * @returns Whether the copy is complete: false when it was stopped.
 */
export function copyDatabase({ path }: SqliteLocation, target: string, stop: AbortSignal): Promise<boolean> {
  return backupSqlite(path, target, stop);
}

/** One step of a schema: its name, and its SQL as it runs. */
export interface MigrationStep {
  readonly tag: string;
  readonly script: string;
}

/**
 * Brings a database on PostgreSQL to the newest schema.
 *
 * @param dryRun Whether to change nothing.
 * @returns The steps that were necessary.
 */
export async function migrateDatabase({ url }: PostgresLocation, dryRun: boolean): Promise<readonly MigrationStep[]> {
  const migrations = await migratePostgres(url, dryRun);
  return migrations.map((migration) => ({ tag: migration.tag, script: scriptOf(migration) }));
}
