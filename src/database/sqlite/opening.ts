import { constants } from "bun:sqlite";
import { existsSync } from "node:fs";

import type { Access } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { Client } from "./bun_driver.ts";
import { setPragma } from "./driver.ts";
import { isFailedSync, isLocked, toDatabaseError } from "./errors.ts";
import { databaseFile, requireFiles } from "./files.ts";
import { checkOnOpening } from "./integrity.ts";
import { closeWithoutCheckpoint, requireUnmarked } from "./markers.ts";
import { hasOurTables, lastMigration, migrate, NEWEST } from "./migrations.ts";
import { markUnsynced, resetUnsyncedWal, resetWal, unsyncedMarker } from "./wal.ts";

/** How long a command waits for the lock of another process, in milliseconds. */
export const BUSY_TIMEOUT_MS = 5_000;

/** How to connect. */
export interface ConnectOptions {
  /**
   * `create` creates the file if there is none; `write` and `read` need one.
   *
   * @default {"create"}
   */
  readonly access?: Access;
  /**
   * How long to wait for the lock of another process, in milliseconds.
   *
   * @default {BUSY_TIMEOUT_MS}
   */
  readonly busyTimeoutMs?: number;
  /**
   * Whether to reset the WAL, while other writers wait. After a failed fsync it is always reset.
   *
   * @default {false}
   */
  readonly resetsWal?: boolean;
}

/**
 * Connects to a database file. Checks that it is a plant-store's, and unless it is only read, runs
 * {@linkcode checkOnOpening} and migrates it. Leaves a file that cannot be used as it was, with its
 * WAL.
 *
 * @throws {DatabaseError} If the file cannot be opened, is not a database, is corrupt, or belongs
 *   to another application or a newer plant-store; or if a file beside it cannot be trusted.
 */
export function connect(path: string, options: ConnectOptions = {}): Client {
  const { access = "create" } = options;
  let client: Client | undefined;

  try {
    requireFiles(databaseFile(path), access);
    if (access !== "read")
      requireUnmarked(path, "restore a backup, or check it: plant-store check");

    const mode = access === "read" ? { readonly: true } : { readwrite: true };
    client = new Client(path, { ...mode, safeIntegers: true, strict: true });
    setUp(client, options);
    return client;
  } catch (error) {
    if (isFailedSync(error)) markUnsynced(path);
    if (client !== undefined) closeWithoutCheckpoint(client);
    throw toDatabaseError("open", path, error);
  }
}

/**
 * Prepares a connection. The order matters: nothing is written to a file that is not ours or is
 * corrupt, and no plant is compared with a WAL that is not trusted.
 */
function setUp(client: Client, options: ConnectOptions): void {
  const { access, busyTimeoutMs = BUSY_TIMEOUT_MS, resetsWal = false } = options;

  // Wait for locks. This comes first, because each later statement may meet one.
  client.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`);

  // Refuse what is not ours before the first write: the WAL of a newer plant-store stays as it was.
  const hasTables = hasOurTables(client);
  if (access === "read") return requireReadable(client, hasTables);
  if (hasTables) checkOnOpening(client);
  const isUpToDate = hasTables && lastMigration(client) === NEWEST;

  // Write through a WAL, with an fsync for each commit. SQLite's own checkpoint hides a failed
  // fsync: `checkpointer` makes all checkpoints.
  beginWalMode(client, busyTimeoutMs);
  setPragma(client, "synchronous", "FULL", 2);
  setPragma(client, "wal_autocheckpoint", 0);

  // Open the WAL by a first read: a backup is a file without one. From then on this connection
  // holds a lock, and a restore needs that lock to move the file. A file that was moved earlier
  // would be written to beside the WAL of the restored one.
  client.run("PRAGMA schema_version");
  if (hasMoved(client)) throw new DatabaseError("it was replaced while it was opened; try again");

  // Reset a WAL that is not trusted, and only then migrate.
  if (existsSync(unsyncedMarker(client.filename))) resetUnsyncedWal(client, client.filename);
  else if (resetsWal) tryToResetWal(client, busyTimeoutMs);
  if (!isUpToDate) migrate(client);
}

/** Requires that a file which is only read has our tables, of no newer version. */
function requireReadable(client: Client, hasTables: boolean): void {
  if (!hasTables) throw new DatabaseError("it is empty: no plant-store has created its tables yet");
  lastMigration(client);
}

/**
 * Whether the path leads to another file by now, or to none. SQLite compares with the file that it
 * opened for writing: an overlay has copied it out of a lower layer by then.
 */
function hasMoved(client: Client): boolean {
  // SQLite writes four bytes, and bun:sqlite wants room for eight.
  const moved = new Int32Array(2);
  client.fileControl(constants.SQLITE_FCNTL_HAS_MOVED, moved);
  return moved[0] !== 0;
}

/**
 * How long to wait before the next attempt, in milliseconds: another process creates the file with
 * a few fsyncs.
 */
const RETRY_MS = 5;

/**
 * Switches to WAL mode. SQLite does not wait for a lock to begin the first WAL: of two processes
 * that create a file together, one would fail.
 */
function beginWalMode(client: Client, busyTimeoutMs: number): void {
  const deadline = performance.now() + busyTimeoutMs;

  for (;;) {
    try {
      return setPragma(client, "journal_mode", "WAL", "wal");
    } catch (error) {
      if (!isLocked(error) || performance.now() >= deadline) throw error;
    }

    Bun.sleepSync(RETRY_MS);
  }
}

/** How long to wait for other users of the WAL, in milliseconds: meanwhile no process can write. */
const RESET_TIMEOUT_MS = 100;

/**
 * Resets the WAL if no other process uses it. A server that was killed during an fsync leaves
 * transactions that were never synced, and a 200 could rest on them. If another process uses the
 * WAL, the checkpoint syncs it, which is enough.
 */
function tryToResetWal(client: Client, busyTimeoutMs: number): void {
  client.run(`PRAGMA busy_timeout = ${RESET_TIMEOUT_MS}`);
  try {
    resetWal(client);
  } catch (error) {
    // Without space, for example, the server starts anyway, returns 503, and recovers by itself.
    if (isFailedSync(error)) throw error;
  } finally {
    client.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  }
}
