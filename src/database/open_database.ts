import { clearableMark, damageMark } from "./sqlite/damage_mark.ts";
import { type IntegrityProgress, type IntegrityResult, integrityChecker } from "./sqlite/integrity_client.ts";
import { type LockWaitOptions, waitForLock } from "./sqlite/lock_wait.ts";
import { openSqliteWorker, type SqliteWorkerOptions } from "./sqlite/worker_client.ts";
import type { Database } from "./database.ts";
import type { PostgresUrl } from "./postgres/url.ts";
import { aborted } from "../async/waiting.ts";

/** Which adapter a database is behind, and where it is. */
export type DatabaseLocation = SqliteLocation | PostgresLocation;

/** A SQLite database in a file. */
export interface SqliteLocation {
  readonly adapter: "sqlite";
  readonly path: string;
}

/** A database on a PostgreSQL server. */
export interface PostgresLocation {
  readonly adapter: "postgres";
  readonly url: PostgresUrl;
}

/**
 * Opens a database for a server, and makes it where there is none: no call blocks the thread.
 *
 * @param options Of these PostgreSQL takes `onWarning`. It closes at once, and has nothing more to tell.
 * @throws {DatabaseError} If it cannot be used; so do the other ways to open one.
 */
export async function openForServing(location: DatabaseLocation, options: SqliteWorkerOptions): Promise<Database> {
  if (location.adapter === "sqlite") return openSqliteWorker(location.path, options);
  const { openPostgres } = await postgres();
  return openPostgres(location.url, { onWarning: options.onWarning });
}

/** How many batches a server's database commits at once. */
export async function lanesOf({ adapter }: DatabaseLocation): Promise<number> {
  return adapter === "postgres" ? (await postgres()).LANES : 1;
}

/** An adapter is loaded where its database is opened: a start does not wait for what it does not use. */
function postgres() {
  return import("./postgres/database.ts");
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
  if (location.adapter === "postgres") return (await postgres()).openPostgres(location.url, { access });
  const { connect } = await import("./sqlite/connection.ts");
  const { sqliteDatabase } = await import("./sqlite/database.ts");
  const database = sqliteDatabase(connect(location.path, { access, beginWal }));
  return lockWait ? { ...database, plants: waitForLock(database.plants, lockWait) } : database;
}

/** Takes a line for the user: what is read may not be all that there is. */
export type OnWarning = (message: string) => void;

/** Opens a database for a command that only reads its plants. Makes none, and changes none. */
export async function openForReading(
  location: DatabaseLocation,
  onWarning: OnWarning,
): Promise<Pick<Database, "pages"> & AsyncDisposable> {
  if (location.adapter === "postgres") return openPostgresReader(location, onWarning);
  const { openSqliteReader } = await import("./sqlite/reader.ts");
  return openSqliteReader(location.path);
}

/** Opens a database for a command that only reads its tokens. Makes none. */
export async function openForListing(
  location: DatabaseLocation,
  onWarning: OnWarning,
): Promise<Pick<Database, "tokens"> & AsyncDisposable> {
  return location.adapter === "postgres" ? openPostgresReader(location, onWarning) : openForWriting(location);
}

async function openPostgresReader({ url }: PostgresLocation, onWarning: OnWarning): Promise<Database> {
  return (await postgres()).openPostgres(url, { access: "read", onWarning });
}

/**
 * Watches the mark of a file that is damaged, from the moment on that it was opened. PostgreSQL has none.
 *
 * @returns What was found by now, in one line; nothing where no damage is known.
 */
export function watchDamage(location: DatabaseLocation): () => string | undefined {
  return location.adapter === "sqlite" ? damageMark(location.path).finding : () => undefined;
}

/**
 * Reads a whole database for damage. A file that is sound is no longer marked as damaged; it counts as damaged where
 * another process has marked it during the check.
 *
 * @param stop Ends the check.
 */
export async function checkDatabase(
  { path }: SqliteLocation,
  stop: AbortSignal,
  onProgress: (progress: IntegrityProgress) => void,
): Promise<IntegrityResult> {
  const clearMark = clearableMark(path);
  const result = integrityChecker(path).check({ background: false, onProgress });
  // SQLite may be in the middle of a step that takes seconds: the process ends without it.
  const ended = (await Promise.race([result, aborted(stop)])) ?? { type: "stopped" };
  const finding = ended.type === "sound" ? clearMark() : undefined;
  return finding === undefined ? ended : { type: "damaged", finding };
}

/**
 * Copies a database into a new file.
 *
 * @param target The file, as an absolute path.
 * @returns Whether the copy is complete: false when it was stopped.
 */
export async function copyDatabase({ path }: SqliteLocation, target: string, stop: AbortSignal): Promise<boolean> {
  const { backupSqlite } = await import("./sqlite/backup.ts");
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
export async function migrateDatabase(
  { url }: PostgresLocation,
  dryRun: boolean,
  onWarning: OnWarning,
): Promise<readonly MigrationStep[]> {
  const { migratePostgres } = await postgres();
  const { scriptOf } = await import("./postgres/migrations.ts");
  const migrations = await migratePostgres(url, dryRun, onWarning);
  return migrations.map((migration) => ({ tag: migration.tag, script: scriptOf(migration) }));
}
