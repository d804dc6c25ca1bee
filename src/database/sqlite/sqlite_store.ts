import { resolve } from "node:path";

import { MAX_TIMER_MS } from "../../async/timers.ts";
import { reasonOf, requireNoMore, requireNumber } from "../../errors.ts";
import type { PlantStore } from "../../group_commit/plant_store.ts";
import { DatabaseError } from "../database.ts";
import { NODE, nodeRows } from "./node_driver.ts";
import { BUSY_TIMEOUT_MS, type ConnectOptions, openDatabase } from "./opening.ts";
import { sqlitePath } from "./path.ts";
import { openStore, retryWhileLocked } from "./store.ts";

/** A durable store of plants in a SQLite file. */
export interface SqliteStore extends PlantStore, AsyncDisposable {
  /**
   * Adds plants, as a `PlantStore` does.
   *
   * @throws {TypeError} If `timeoutMs` is not a number from 0 to 2,147,483,647.
   */
  add: PlantStore["add"];

  /**
   * Resolves with the cause once the store has failed for good. An fsync failed, the file is corrupt, its
   * files were replaced, or this program dropped SQLite's lock on it. From then on every call rejects,
   * and only a new process can find out what is on the disk. Never rejects.
   */
  readonly failed: Promise<Error>;

  /**
   * Moves the WAL into the database file, and closes it. Disposing of the store does the same. From then on
   * every call rejects.
   *
   * @throws {PlantStoreError} If the WAL cannot be moved, for example on a full disk. The WAL stays beside
   *   the file, and nothing is lost.
   */
  close(): void;
}

/** Options of {@linkcode sqliteStore}. */
export interface SqliteStoreOptions {
  /**
   * Whether to create the database if it does not exist, with a line on `console.warn`. A first start and a
   * missing mount look the same. To refuse a missing file, set it to `false`, and create the database once
   * with `plant-store migrate`.
   *
   * @default {true}
   */
  readonly create?: boolean | undefined;
}

/**
 * Opens a durable store of plants in a SQLite file, with `node:sqlite` of Node 22.13, Deno 2.2.3, Bun 1.4 or
 * newer. The executable uses the same file format: `plant-store export`, `check` and `backup` work on the
 * file while the store is open.
 *
 * A batch is on the disk when `add` resolves (WAL mode, `synchronous=FULL`). `add` blocks the event loop for
 * one fsync, and now and then for a checkpoint of the WAL. While another process holds the lock on the file,
 * it waits without blocking.
 *
 * **Never open the file or a file beside it in the program that has the store open**, even to read, copy or
 * serve it. Closing it drops SQLite's lock, and another process may remove the newest plants. On Linux, except
 * under Deno, the store detects that and fails before it acknowledges another plant. Copy the file with
 * `plant-store backup`, which works while your program runs.
 *
 * @param path A path, or `file:PATH` as for the executable.
 * @throws {TypeError} If the path is not a string or does not name a file, or if `create` is not a boolean.
 * @throws {Error} If the file cannot be opened, is corrupt, or does not belong to this or an older version of
 *   plant-store. The message names the file and says why.
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
export async function sqliteStore(
  path: string,
  { create = true, ...rest }: SqliteStoreOptions = {},
): Promise<SqliteStore> {
  const file = requirePath(path);
  requireNoMore(rest);
  if (typeof create !== "boolean")
    throw new TypeError(`Cannot use \`create\` ${String(create)}: expected true or false`);

  try {
    const options: ConnectOptions = {
      access: create ? "create" : "write",
      // 0, because retryWhileLocked waits without blocking the event loop.
      busyTimeoutMs: 0,
      resetsWal: true,
      onMigrated: (_, isNew) => isNew && console.warn(`Created an empty database: ${file}`),
      onWarning: (message, why) => console.warn(`${message}: ${why?.reason}`),
    };
    const open = () => openDatabase(NODE, file, options);
    const connection = await retryWhileLocked(open, BUSY_TIMEOUT_MS);

    const { add, probe, failed, close } = openStore(connection, {
      statements: nodeRows(connection),
      lockTimeoutMs: PROBE_TIMEOUT_MS,
      sharesProcess: true,
      walBytes: new Float64Array(1),
    });
    return {
      async add(plants, { timeoutMs }) {
        requireNumber("timeoutMs", timeoutMs, { min: 0, max: MAX_TIMER_MS });
        return add(plants, { timeoutMs });
      },
      probe,
      failed,
      close,
      [Symbol.asyncDispose]: async () => close(),
    };
  } catch (cause) {
    // Deno's errors have no code, so they were not translated.
    if (cause instanceof DatabaseError) throw cause;
    throw new DatabaseError(`Cannot open database "${file}": ${reasonOf(cause)}`, { cause });
  }
}

/** How long a probe waits for the lock of another process, in milliseconds. */
const PROBE_TIMEOUT_MS = 1_000;

/** Returns the absolute path, because the program may change its working directory. */
function requirePath(path: unknown): string {
  if (typeof path !== "string")
    throw new TypeError(`sqliteStore() expects a path as a string, not ${String(path)}`);

  const file = sqlitePath(path);
  if (file !== undefined) return resolve(file);
  throw new TypeError(
    path.includes(":memory:")
      ? `sqliteStore() keeps plants in a file, not in "${path}": use memoryStore()`
      : `sqliteStore() expects a path or file:PATH, not "${path}"`,
  );
}
