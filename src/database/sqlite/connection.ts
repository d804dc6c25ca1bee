import { Database } from "bun:sqlite";
import type { Access } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { identityOf, requireUnmarked } from "./corruption.ts";
import { isFailedSync, isLocked, toDatabaseError } from "./errors.ts";
import { clearUnsynced, closeWithoutCheckpoint, isUnsynced, markUnsynced } from "./fail_stop.ts";
import { databaseFile, requireFiles } from "./files.ts";
import { checkOnOpening } from "./integrity.ts";
import { APPLICATION_ID, migrate, requireKnownSchema } from "./migrations.ts";

/** How to connect. */
export interface ConnectOptions {
  /** What for: `create` creates the file if there is none, `write` and `read` need one. @default {"create"} */
  readonly access?: Access;
  /** How long to wait for another process's lock, in milliseconds. @default {5_000} */
  readonly busyTimeoutMs?: number;
  /** Whether to reset the WAL, while other writers wait; after a failed fsync it is reset in any case. @default {false} */
  readonly resetsWal?: boolean;
}

/**
 * Connects to a database file, checks that it is a plant-store's, and brings it to the newest schema unless it is only
 * read. Before it writes it looks for what {@linkcode checkOnOpening} finds: `checkIntegrity` reads the rest. A file that cannot be used is left as it was, with its WAL.
 *
 * @throws {DatabaseError} If the file is not a database, is corrupt, belongs to another application or a newer
 * plant-store, or cannot be opened, or if a file beside it cannot be trusted.
 */
export function connect(path: string, options: ConnectOptions = {}): Database {
  const { access = "create" } = options;
  let client: Database | undefined;
  try {
    requireFiles(databaseFile(path), access);
    if (access !== "read") requireUnmarked(path, "restore a backup, or check it: plant-store check");
    const file = identityOf(path);
    client = new Database(path, { ...MODES[access], safeIntegers: true, strict: true });
    setUp(client, options, file);
    return client;
  } catch (error) {
    if (isFailedSync(error)) markUnsynced(path);
    if (client !== undefined) closeWithoutCheckpoint(client);
    throw toDatabaseError("open", path, error);
  }
}

/**
 * Connects once more to a database that another connection of this process has open for writing, to move its WAL.
 *
 * @throws {DatabaseError} If it cannot be opened.
 */
export function connectAgain(path: string): Database {
  try {
    const client = new Database(path, { ...MODES.write, safeIntegers: true, strict: true });
    client.run("PRAGMA busy_timeout = 5000");
    makeDurable(client);
    // SQLite does not checkpoint before the connection has read: only then it knows of the WAL.
    pragma(client, "application_id");
    return client;
  } catch (error) {
    throw toDatabaseError("open", path, error);
  }
}

const MODES = {
  create: { create: true, readwrite: true },
  write: { create: false, readwrite: true },
  read: { readonly: true },
} as const;

function setUp(
  client: Database,
  { access, busyTimeoutMs = 5_000, resetsWal = false }: ConnectOptions,
  file?: string,
): void {
  // First of all, so that whatever follows waits for a lock instead of failing.
  client.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  if (access === "read") return requireReadable(client);
  if (requireApplicationId(client)) {
    checkOnOpening(client);
    // Before anything is written: even the WAL of a newer plant-store stays as it was.
    requireKnownSchema(client);
  }
  beginWalMode(client, busyTimeoutMs);
  makeDurable(client);
  requireSameFile(client, file);
  if (isUnsynced(client.filename)) resetUnsyncedWal(client);
  else if (resetsWal) tryToResetWal(client, busyTimeoutMs);
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
 * If the file has no WAL yet, SQLite does not wait for another process's lock before it begins one: of two processes
 * that create a file together, one would fail.
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

/**
 * From WAL mode on the connection keeps the lock that a restore takes before it moves the file. What was moved between
 * opening and that lock would be written to beside the WAL of the restored one.
 */
function requireSameFile({ filename }: Database, file: string | undefined): void {
  if (identityOf(filename) !== file) throw new DatabaseError("it was replaced while it was opened; try again");
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
 * Resets the WAL after an fsync that failed, which leaves transactions there that no later fsync brings to the disk,
 * because the kernel takes their pages for clean. SQLite finds them valid in the page cache, and a 200 could rest on them.
 * Waits for a process that only reads, which may have found such transactions first.
 */
function resetUnsyncedWal(client: Database): void {
  if (!resetWal(client)) throw new DatabaseError(IN_USE);
  clearUnsynced(client.filename);
}

const IN_USE =
  "an fsync failed before, and another process reads what that left in the WAL; try again when it has ended";

/** How long to wait for other users of the WAL, in milliseconds: meanwhile no process can write. */
const RESET_TIMEOUT_MS = 100;

/**
 * Resets the WAL if no other process uses it: a server that was killed in an fsync leaves transactions there that were never
 * synced, and a 200 could rest on them. Beside another process the WAL is synced, which is enough for these.
 */
function tryToResetWal(client: Database, busyTimeoutMs: number): void {
  client.run(`PRAGMA busy_timeout = ${RESET_TIMEOUT_MS}`);
  try {
    resetWal(client);
  } catch (error) {
    // Without space, for example, the server starts all the same, returns 503, and works again by itself.
    if (isFailedSync(error)) throw error;
  } finally {
    client.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  }
}

/**
 * Moves what is in the WAL into the database, and lets the WAL begin anew. Takes time with the size of the WAL.
 *
 * @returns Whether it begins anew: not beside another process that uses it.
 */
function resetWal(client: Database): boolean {
  const [[busy, pages] = []] = client.query<never, []>("PRAGMA wal_checkpoint(RESTART)").values();
  if (busy !== 0n) return false;
  // The next commit replaces the WAL's header on the disk, which until then has a part of the transactions.
  if (Number(pages) > 0) client.run("PRAGMA user_version = 0");
  return true;
}
