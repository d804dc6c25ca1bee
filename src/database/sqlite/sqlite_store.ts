import { resolve } from "node:path";

import { MAX_TIMER_MS } from "../../async/timers.ts";
import { reasonOf, requireNoMore, requireNumber } from "../../errors.ts";
import type { PlantStore } from "../../group_commit/plant_store.ts";
import { DatabaseError } from "../database.ts";
import { NODE, nodeRows } from "./node_driver.ts";
import { BUSY_TIMEOUT_MS, type ConnectOptions, openDatabase } from "./opening.ts";
import { sqlitePath } from "./path.ts";
import { openStore, retryWhileLocked } from "./store.ts";

/** Plants in a file of SQLite. */
export interface SqliteStore extends PlantStore, AsyncDisposable {
  /**
   * As the port has it.
   *
   * @throws {TypeError} If `timeoutMs` is not a number from 0 to 2,147,483,647.
   */
  add: PlantStore["add"];

  /**
   * Resolves with the cause once the store may acknowledge nothing more, and only a new process can
   * find out what is on the disk: an fsync failed, the file is corrupt, its files were replaced, or
   * this program has dropped SQLite's lock on it. From then on every call rejects. Never rejects.
   */
  readonly failed: Promise<Error>;

  /**
   * Moves the WAL into the file, and closes it, as disposing of the store does. From then on every call
   * rejects.
   *
   * @throws {PlantStoreError} If the WAL cannot be moved, for example because the disk is full:
   *   nothing is lost, and the WAL stays beside the file.
   */
  close(): void;
}

/** Options of {@linkcode sqliteStore}. */
export interface SqliteStoreOptions {
  /**
   * Whether to create the database if there is none, with a line by `console.warn`. A first start and
   * a disk that is not mounted look alike: with `false`, a missing file is refused. Create the
   * database once, with `true` or by `plant-store migrate`.
   *
   * @default {true}
   */
  readonly create?: boolean | undefined;
}

/**
 * Opens a durable store of plants in a file of SQLite, by `node:sqlite` of Node 22.13, Deno 2.2.3,
 * Bun 1.4 and newer. It is a database of the executable: `plant-store export`, `check` and `backup`
 * work on it while the store is open.
 *
 * A batch is on the disk when `add` resolves (WAL mode, `synchronous=FULL`). Until then it blocks
 * the event loop: for one fsync, and now and then for a checkpoint of the WAL. While another
 * process holds the lock of the file, `add` waits without blocking.
 *
 * **Never open the file, nor a file beside it, in the program that has the store open**, not to
 * read, copy or serve it: closing it drops SQLite's lock, and another process may remove the newest
 * plants. Linux shows that, and the store fails before it acknowledges another plant; Deno and other
 * systems do not. Copy the file with `plant-store backup`, even beside your program.
 *
 * @param path A path, or `file:PATH` as the executable takes it.
 * @throws {TypeError} If the path is not a string, or does not name a file; or `create` is not a
 *   boolean.
 * @throws {Error} If the file is missing or cannot be opened, is not a database, is corrupt, or belongs to another
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
