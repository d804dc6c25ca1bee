import { Database, SQLiteError } from "bun:sqlite";
import { DatabaseFileError } from "./errors.ts";
import { APPLICATION_ID, migrate } from "./migrations.ts";

/** How to open a database. */
export interface OpenOptions {
  /** How long to wait for another process's lock, in milliseconds. @default {5_000} */
  readonly busyTimeoutMs?: number;
  /** Whether to make the file where there is none. @default {true} */
  readonly create?: boolean;
  /** Whether to read the whole file for damage: seconds for millions of plants. @default {true} */
  readonly verify?: boolean;
}

/**
 * Opens a database file, makes it where there is none, checks it, and brings it to the newest schema. A file that
 * cannot be used is left as it was.
 *
 * @throws {DatabaseFileError} If the file is not a database, is damaged, belongs to another application or a newer
 * plant-store, or cannot be opened.
 */
export function openDatabase(path: string, options: OpenOptions = {}): Database {
  const { busyTimeoutMs = 5_000, create = true, verify = true } = options;
  let client: Database | undefined;
  try {
    client = new Database(path, { create, readwrite: true, safeIntegers: true, strict: true });
    // First of all, so that whatever follows waits for a lock instead of failing.
    client.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
    requireOurs(client);
    if (verify) requireIntegrity(client);
    makeDurable(client);
    migrate(client);
    return client;
  } catch (error) {
    client?.close();
    throw cannotOpen(path, error);
  }
}

function requireOurs(client: Database): void {
  const { tables } = client.query("SELECT count(*) AS tables FROM sqlite_schema").get() as { tables: bigint };
  if (tables > 0n && pragma(client, "application_id") !== BigInt(APPLICATION_ID)) {
    throw new DatabaseFileError("belongs to another application");
  }
}

/** An insert does not notice damaged pages elsewhere in the file; this does. */
function requireIntegrity(client: Database): void {
  const verdict = String(pragma(client, "quick_check(1)"));
  if (verdict !== "ok") throw new DatabaseFileError(`is damaged (${verdict.replaceAll("\n", " ")})`);
}

function makeDurable(client: Database): void {
  set(client, "journal_mode", "WAL", "wal");
  set(client, "synchronous", "FULL", 2n);
  // SQLite's own checkpoint hides a failed fsync: `checkpointer` makes it instead.
  set(client, "wal_autocheckpoint", 0, 0n);
}

/** SQLite ignores a setting that it cannot follow, so each is read back. */
function set(client: Database, name: string, value: string | number, expected: unknown): void {
  client.query(`PRAGMA ${name} = ${value}`).all();
  const actual = pragma(client, name);
  if (actual !== expected) throw new DatabaseFileError(`does not take ${name} = ${value} (it is ${actual})`);
}

function pragma(client: Database, name: string): unknown {
  return client.query(`PRAGMA ${name}`).values()[0]?.[0];
}

function cannotOpen(path: string, error: unknown): unknown {
  if (error instanceof DatabaseFileError) {
    return new DatabaseFileError(`Cannot open database "${path}": it ${error.message}`);
  }
  if (error instanceof SQLiteError) {
    return new DatabaseFileError(`Cannot open database "${path}": ${error.message}`, { cause: error });
  }
  return error;
}
