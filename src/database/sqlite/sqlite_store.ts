import { existsSync } from "node:fs";
import { DatabaseSync, type StatementSync } from "node:sqlite";

import { PlantStoreError, reasonOf } from "../../errors.ts";
import { type NewPlant, PLANT_FIELDS, plantOf, samePlant } from "../../plant/plant.ts";
import { ADD_SHARE } from "../adapter.ts";
import { type AddOutcome, DatabaseError, type PlantStore } from "../database.ts";
import { retryWhileLocked, setPragma, type SqlClient, transaction } from "./driver.ts";
import { databaseFile, requireDatabaseFile, sameFilesCheck } from "./files.ts";
import { hasOurTables, lastMigration, migrate, NEWEST } from "./migrations.ts";
import {
  closeLeavingWal,
  markUnsynced,
  resetUnsyncedWal,
  resetWal,
  unsyncedMarker,
} from "./wal.ts";

/** Plants in a file of SQLite. */
export interface SqliteStore extends PlantStore {
  /**
   * Resolves with the cause once the store may acknowledge nothing more: the file is corrupt, or an
   * fsync failed, and only a new process can find out what is on the disk. From then on every call
   * rejects. Never rejects.
   */
  readonly failed: Promise<Error>;

  /** Closes the file. From then on every call rejects. */
  close(): void;
}

/**
 * Opens a durable store of plants in a file of SQLite, by `node:sqlite` of Node 22.13 and newer,
 * Deno and Bun. Creates the file if there is none. It is a database of the executable: `plant-store
 * export`, `check` and `backup` work on it while the store is open.
 *
 * A batch is on the disk when `add` resolves (WAL mode, `synchronous=FULL`). Until then it blocks
 * the event loop: for one fsync, and now and then for a checkpoint of the WAL. While another
 * process holds the lock of the file, `add` waits without blocking.
 *
 * @throws {Error} If the file cannot be opened, is not a database, or belongs to another
 *   application or to a newer version. The message names it, and says why.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { sqliteStore } from "plant-store/sqlite";
 *
 * const path = join(mkdtempSync(join(tmpdir(), "plants-")), "plants.db");
 * const fern = { id: 1n, name: "Fern" };
 *
 * const store = await sqliteStore(path);
 * assert.deepEqual(await store.add([fern], { timeoutMs: 1_000 }), ["added"]);
 * store.close();
 *
 * const reopened = await sqliteStore(path);
 * assert.deepEqual(await reopened.add([fern], { timeoutMs: 1_000 }), ["present"]);
 * reopened.close();
 * ```
 */
export async function sqliteStore(path: string): Promise<SqliteStore> {
  try {
    const file = databaseFile(path);
    requireDatabaseFile(file, "create");
    if (existsSync(`${file}-corrupt`))
      throw new DatabaseError("it is marked as corrupt; run plant-store check");

    return await open(file);
  } catch (cause) {
    throw new DatabaseError(`Cannot open database "${path}": ${reasonOf(cause)}`, { cause });
  }
}

/** How long opening waits for the lock of another process, in milliseconds. */
const OPEN_TIMEOUT_MS = 5_000;
/** How long a probe waits for it, in milliseconds. */
const PROBE_TIMEOUT_MS = 1_000;

async function open(file: string): Promise<SqliteStore> {
  const database = new DatabaseSync(file);

  try {
    const client = clientOf(database);
    await retryWhileLocked(() => setUp(client, file), isLocked, OPEN_TIMEOUT_MS);
    return storeOf(database, client, file);
  } catch (error) {
    closeAfter(error, database, file);
    throw error;
  }
}

function clientOf(database: DatabaseSync): SqlClient & Disposable {
  const statements = new Map<string, StatementSync>();

  return {
    exec: (sql) => database.exec(sql),
    all(sql) {
      const statement = statements.get(sql) ?? database.prepare(sql);
      statements.set(sql, statement);
      // Not `run`, which fails after an id past 2^53: Node reads the newest one as a number.
      return statement.all();
    },
    [Symbol.dispose]: () => database.close(),
  };
}

/** Closes a file after an error. What an error makes doubtful is not moved out of the WAL. */
function closeAfter(error: unknown, database: DatabaseSync, file: string): void {
  const openReader = () => clientOf(new DatabaseSync(file, { readOnly: true }));
  const close = () => database.close();

  if (isFailedSync(error)) markUnsynced(file);
  if (isFinal(error)) closeLeavingWal(file, close, openReader);
  else close();
}

/** As the executable does it: nothing is written to a file that is not ours. */
function setUp(client: SqlClient, file: string): void {
  client.all("PRAGMA busy_timeout = 0");
  const isUpToDate = hasOurTables(client) && lastMigration(client) === NEWEST;

  setPragma(client, "journal_mode", "WAL", "wal");
  setPragma(client, "synchronous", "FULL", 2);

  // A process that was killed during an fsync leaves transactions that were never synced, and a 200
  // could rest on them.
  if (existsSync(unsyncedMarker(file))) resetUnsyncedWal(client, file);
  else resetWal(client);
  if (!isUpToDate) migrate(client);

  // A file that cannot be written to fails here, not with the first plant.
  commitPage(client);
}

/** Commits a page, as adding a plant does. Nothing uses this number. */
function commitPage(client: SqlClient): void {
  client.all("PRAGMA user_version = 0");
}

function storeOf(database: DatabaseSync, client: SqlClient, file: string): SqliteStore {
  const addOne = adding(database);
  const requireSameFiles = sameFilesCheck(file);
  const { promise: failed, resolve: resolveFailed } = Promise.withResolvers<Error>();
  let isOpen = true;

  function close(): void {
    if (isOpen) database.close();
    isOpen = false;
  }

  async function commit<Result>(run: () => Result, timeoutMs: number): Promise<Result> {
    try {
      const result = await retryWhileLocked(run, isLocked, timeoutMs);
      requireSameFiles();
      return result;
    } catch (cause) {
      if (!isUnavailable(cause)) throw cause;

      const error = new PlantStoreError("storage_unavailable", undefined, { cause });
      if (isOpen && isFinal(cause)) {
        isOpen = false;
        closeAfter(cause, database, file);
        resolveFailed(error);
      }
      throw error;
    }
  }

  return {
    add: (plants, { timeoutMs }) =>
      commit(() => transaction(client, () => plants.map(addOne)), timeoutMs * ADD_SHARE),
    probe: () => commit(() => commitPage(client), PROBE_TIMEOUT_MS),
    failed,
    close,
  };
}

const COLUMNS = ["id", ...PLANT_FIELDS] as const;

/** Prepares adding a plant, within a transaction. */
function adding(database: DatabaseSync): (plant: NewPlant) => AddOutcome {
  const placeholders = COLUMNS.map(() => "?");
  const insert = database.prepare(
    `INSERT INTO plants (${COLUMNS}) VALUES (${placeholders}) ON CONFLICT DO NOTHING`,
  );
  const select = database.prepare("SELECT * FROM plants WHERE id = ?");
  // Otherwise ids past 2^53 are refused or rounded.
  for (const statement of [insert, select]) statement.setReadBigInts(true);

  return (plant) => {
    const { changes } = insert.run(...COLUMNS.map((column) => plant[column] ?? null));
    if (Number(changes) === 1) return "added";

    const row = select.get(plant.id) as Record<string, string | null> | undefined;
    const stored = plantOf(plant.id, (field) => row?.[field]);
    return samePlant(stored, plant) ? "present" : "conflict";
  };
}

/**
 * SQLite's result codes (https://www.sqlite.org/rescode.html). The lowest eight bits of an extended
 * code are its primary one.
 */
const CODES = {
  PERM: 3,
  BUSY: 5,
  LOCKED: 6,
  NOMEM: 7,
  READONLY: 8,
  IOERR: 10,
  CORRUPT: 11,
  FULL: 13,
  CANTOPEN: 14,
  NOTADB: 26,
  IOERR_FSYNC: 1_034,
  IOERR_DIR_FSYNC: 1_290,
} as const;

/** The primary codes that are a state of the storage. */
const UNAVAILABLE: readonly number[] = [
  CODES.PERM,
  CODES.NOMEM,
  CODES.READONLY,
  CODES.IOERR,
  CODES.CORRUPT,
  CODES.FULL,
  CODES.CANTOPEN,
  CODES.NOTADB,
];

/** Whether an error is a state of the storage, and not a bug. */
function isUnavailable(error: unknown): boolean {
  const isClosed = (error as { readonly code?: unknown }).code === "ERR_INVALID_STATE";
  return isClosed || isLocked(error) || UNAVAILABLE.includes(primaryCodeOf(error));
}

/** Whether another process holds the lock. */
function isLocked(error: unknown): boolean {
  const code = primaryCodeOf(error);
  return code === CODES.BUSY || code === CODES.LOCKED;
}

/** Whether only a new process, or a restored backup, may acknowledge plants again. */
function isFinal(error: unknown): boolean {
  return isFailedSync(error) || primaryCodeOf(error) === CODES.CORRUPT;
}

/**
 * Whether an fsync failed. Then the page cache differs from the disk, and a second fsync would
 * succeed without writing the lost pages.
 */
function isFailedSync(error: unknown): boolean {
  const code = resultCodeOf(error);
  return code === CODES.IOERR_FSYNC || code === CODES.IOERR_DIR_FSYNC;
}

function primaryCodeOf(error: unknown): number {
  return resultCodeOf(error) & 0xff;
}

function resultCodeOf(error: unknown): number {
  return Number((error as { readonly errcode?: unknown }).errcode);
}
