import { Database, SQLiteError } from "bun:sqlite";
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseError } from "../database.ts";
import { closeWithoutCheckpoint } from "./close.ts";
import { damageMark } from "./damage_mark.ts";
import { findingOf, isFailedSync, isLocked } from "./errors.ts";
import {
  canWrite,
  createDatabaseFile,
  NOT_WRITABLE,
  requireFile,
  requireFileOfWal,
  requireWritable,
} from "./file_access.ts";
import { APPLICATION_ID, migrate, newestMigration } from "./migrations.ts";
import { checkOnOpening } from "./opening_check.ts";
import { resetWal } from "./reset_wal.ts";
import { unsyncedMark } from "./unsynced_mark.ts";
import { databaseFile } from "./database_file.ts";

/** How to connect. */
export interface ConnectOptions {
  /** What for: `create` makes the file where there is none, `write` and `read` need one. @default {"create"} */
  readonly access?: "create" | "write" | "read";
  /** How long to wait for another process's lock, in milliseconds. @default {5_000} */
  readonly busyTimeoutMs?: number;
  /** Whether to begin the WAL anew, which others who write wait for; after a failed fsync it is always. @default {false} */
  readonly beginWal?: boolean;
}

/**
 * Connects to a database file, checks that it is a plant-store's, and brings it to the newest schema unless it is only
 * read. To write, it also looks for damage where that takes as long for any number of plants: `checkIntegrity` reads
 * the rest. A file that cannot be used is left as it was, with its WAL.
 *
 * @throws {DatabaseError} If the file is not a database, is damaged, belongs to another application or a newer
 * plant-store, or cannot be opened.
 */
export function connect(path: string, options: ConnectOptions = {}): Database {
  const { access = "create" } = options;
  let client: Database | undefined;
  try {
    const file = databaseFile(path);
    if (access === "read") requireFile(file);
    requireFileOfWal(file);
    if (access === "create") createDatabaseFile(file);
    if (access !== "read") requireWritable(file);
    if (access !== "read") requireUnmarked(file);
    client = new Database(path, { ...MODES[access], safeIntegers: true, strict: true });
    prepare(client, options);
    return client;
  } catch (error) {
    if (client !== undefined && isFailedSync(error)) unsyncedMark(path).write();
    if (client !== undefined) closeWithoutCheckpoint(client);
    throw toDatabaseError(access === "read" ? "read" : "open", path, error);
  }
}

const MODES = {
  create: { create: true, readwrite: true },
  write: { create: false, readwrite: true },
  read: { readonly: true },
} as const;

const INTERRUPTED =
  "a write to it was interrupted, and only who writes can undo that: start a server, or list its tokens";

/** Damage that was found before: only a check of the whole file, or another file, ends it. */
function requireUnmarked(path: string): void {
  // Without a file there is no mark, and SQLite says what is wrong.
  const finding = existsSync(path) ? damageMark(path).finding() : undefined;
  if (finding === undefined) return;
  throw new DatabaseError(`it is damaged (${finding}); restore a backup, or check it: plant-store check`);
}

function prepare(client: Database, { access, busyTimeoutMs = 5_000, beginWal = false }: ConnectOptions): void {
  // First of all, so that whatever follows waits for a lock instead of failing.
  client.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  if (access === "read") return requireReadable(client);
  if (requireApplicationId(client)) {
    checkOnOpening(client);
    requireKnownSchema(client);
  }
  beginWalMode(client, busyTimeoutMs);
  makeDurable(client);
  if (beginWal || unsyncedMark(client.filename).isThere()) resetWal(client, busyTimeoutMs);
  migrate(client);
}

function requireReadable(client: Database): void {
  // First, because another process may make the tables now: the id comes in the same transaction.
  if (!hasTables(client)) throw new DatabaseError("it is empty: no plant-store has made its tables yet");
  if (pragma(client, "application_id") !== BigInt(APPLICATION_ID)) {
    throw new DatabaseError("it is not a plant-store's database");
  }
  requireKnownSchema(client);
}

/** Before anything is written: what is in the WAL of a newer one stays there, too. */
function requireKnownSchema(client: Database): void {
  const last = client.query("SELECT max(created_at) FROM __drizzle_migrations").values()[0]?.[0];
  // A newer one may keep more of a plant than is known here.
  if (Number(last) > newestMigration()) throw new DatabaseError("it was made by a newer plant-store");
}

/** Returns whether there is something in the file. */
function requireApplicationId(client: Database): boolean {
  const isMade = hasTables(client);
  if (isMade && pragma(client, "application_id") !== BigInt(APPLICATION_ID)) {
    throw new DatabaseError("it belongs to another application");
  }
  return isMade;
}

function hasTables(client: Database): boolean {
  const { tables } = client.query("SELECT count(*) AS tables FROM sqlite_schema").get() as { tables: bigint };
  return tables > 0n;
}

/** How long to wait before the next try, in milliseconds: another process makes the file in a few fsyncs. */
const TRY_AGAIN_MS = 5;

/**
 * Where the file has no WAL yet, SQLite does not wait for another process's lock before it begins one: of two processes
 * that make a file together, one would fail.
 */
function beginWalMode(client: Database, busyTimeoutMs: number): void {
  const deadline = performance.now() + busyTimeoutMs;
  for (;;) {
    try {
      return set(client, "journal_mode", "WAL", "wal");
    } catch (error) {
      if (!isLocked(error) || performance.now() >= deadline) throw error;
    }
    Bun.sleepSync(TRY_AGAIN_MS);
  }
}

function makeDurable(client: Database): void {
  set(client, "synchronous", "FULL", 2n);
  // SQLite's own checkpoint hides a failed fsync: `checkpointer` makes it instead.
  set(client, "wal_autocheckpoint", 0, 0n);
}

/** SQLite ignores a setting that it cannot follow, so each is read back. */
function set(client: Database, name: string, value: string | number, expected: unknown): void {
  client.query(`PRAGMA ${name} = ${value}`).all();
  const actual = pragma(client, name);
  if (actual !== expected) throw new DatabaseError(`it does not take ${name} = ${value} (it is ${actual})`);
}

function pragma(client: Database, name: string): unknown {
  return client.query(`PRAGMA ${name}`).values()[0]?.[0];
}

/**
 * In one line that names the file: what SQLite, the system or the checks above say. Anything else is a bug, and stays as
 * it is.
 */
export function toDatabaseError(action: string, path: string, error: unknown): unknown {
  const isSystemError = error instanceof Error && "syscall" in error;
  if (!(error instanceof DatabaseError || error instanceof SQLiteError || isSystemError)) return error;
  return new DatabaseError(`Cannot ${action} database "${path}": ${reasonOf(path, error)}`, { cause: error });
}

function reasonOf(path: string, error: Error): string {
  // It was moved away just now.
  if ("syscall" in error && "code" in error) return `it cannot be reached (${error.code})`;
  // On a read-only file system SQLite cannot make the WAL, and does not say why to whom only reads.
  if (error instanceof SQLiteError && error.code === "SQLITE_CANTOPEN" && existsSync(path)) {
    return canWrite(dirname(path)) ? error.message : NOT_WRITABLE;
  }
  // A kill while the file had no WAL yet: https://www.sqlite.org/lockingv3.html#hot_journals
  if (error instanceof SQLiteError && error.code === "SQLITE_READONLY_ROLLBACK") return INTERRUPTED;
  if (error instanceof SQLiteError && error.code?.startsWith("SQLITE_READONLY")) {
    // The last process to close the database removes the WAL, and the next one to open it makes it again.
    return NOT_WRITABLE;
  }
  if (error instanceof SQLiteError && error.code === "SQLITE_NOTADB") return error.message;
  const finding = findingOf(error);
  return finding === undefined ? error.message : `it is damaged (${finding})`;
}
