import { Database } from "bun:sqlite";
import { lstatSync, rmSync, statSync } from "node:fs";
import type { Access } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { identityOf, requireUnmarked } from "./corruption.ts";
import { isFailedSync, isLocked, toDatabaseError } from "./errors.ts";
import { createPrivateFile, databaseFile, requireFiles, walBytes } from "./files.ts";
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
 * Remembers beside a database, as `plants.db-unsynced`, that an fsync of it or of its WAL failed: what the next process
 * finds there may be in the page cache only, and no later fsync brings it to the disk. The marker is not synced itself: a
 * power loss ends the page cache as well. If it cannot be written, it is missing.
 */
export function markUnsynced(path: string): void {
  try {
    createPrivateFile(unsyncedMarker(path), "", statSync(path));
  } catch {
    // It is there; or the disk that failed is full or read-only by now.
  }
}

function isUnsynced(path: string): boolean {
  return lstatSync(unsyncedMarker(path), { throwIfNoEntry: false }) !== undefined;
}

function unsyncedMarker(path: string): string {
  return `${databaseFile(path)}-unsynced`;
}

/**
 * Resets the WAL after an fsync that failed, which leaves transactions there that no later fsync brings to the disk,
 * because the kernel takes their pages for clean. SQLite finds them valid in the page cache, and a 200 could rest on them.
 * Waits for a process that only reads, which may have found such transactions first.
 */
function resetUnsyncedWal(client: Database): void {
  if (!resetWal(client)) throw new DatabaseError(IN_USE);
  rmSync(unsyncedMarker(client.filename), { force: true });
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

/**
 * Closes a connection and leaves its database as it is: the file, and the WAL beside it. Otherwise the last connection
 * to be closed moves the WAL into the file and removes it. What is in the WAL after a failed fsync is not on the disk,
 * and a corrupt file is evidence, and not to be written to.
 *
 * That checkpoint needs an exclusive lock on the file, and SQLite gives none while another connection of the process
 * reads a WAL; one that is opened for reading only cannot take it itself. bun:sqlite has no setting for it.
 */
export function closeWithoutCheckpoint(client: Database): void {
  // Without a WAL there is nothing to move, and the reader would leave an empty one.
  const reader = walBytes(client.filename) > 0 ? openReader(client.filename) : undefined;
  // `close(true)` finalizes statements; otherwise the connection stays open, and Bun checkpoints it when the Worker ends.
  client.close(true);
  reader?.close(true);
}

function openReader(path: string): Database | undefined {
  let reader: Database | undefined;
  try {
    reader = new Database(path, { readonly: true });
    // The first read takes the shared lock, which a connection to a WAL keeps. A page that is corrupt changes nothing.
    reader.query("PRAGMA application_id").values();
  } catch {
    // Without a file, or a descriptor for it, SQLite closes as it always does.
  }
  return reader;
}
