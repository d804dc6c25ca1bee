import { existsSync } from "node:fs";
import { withAbort } from "../../async/abort.ts";
import { ConfigError } from "../../errors.ts";
import type { CheckOptions, CheckResult, DatabaseAdapter, LockWait, PlantReader } from "../adapter.ts";
import { type Database, DatabaseError } from "../database.ts";
import { keysetPages } from "../keyset.ts";
import type { PlantStore } from "../plant_store.ts";
import { clearableMark, damageMark } from "./damage_mark.ts";
import { isLocked } from "./errors.ts";
import { integrityChecker } from "./integrity_client.ts";
import { openSqliteWorker } from "./worker_client.ts";

/** Databases of SQLite, in a file. What a server does not need is loaded where it is used. */
export function sqliteAdapter(path: string): DatabaseAdapter {
  return {
    name: path,
    maxInFlight: 1,
    openForServing: (options) => openSqliteWorker(path, options),
    async openForWriting({ create = false, bulk } = {}) {
      const database = await openHere(path, create ? "create" : "write", bulk !== undefined);
      return bulk === undefined ? database : { ...database, plants: waitForLock(database.plants, bulk) };
    },
    openPlants: () => openPlants(path),
    // As one that writes: the tokens of an older version lack columns.
    openTokens: () => openHere(path, "write", false),
    check: (options) => check(path, options),
    async backup(target, stop) {
      const { backupSqlite } = await import("./backup.ts");
      return backupSqlite(path, target, stop);
    },
    async migrate() {
      throw new ConfigError("Cannot migrate a SQLite database alone: whatever writes to it brings it up to date");
    },
  };
}

/** Opens a database on this thread. */
async function openHere(path: string, access: "create" | "write", beginWal: boolean): Promise<Database> {
  const { connect } = await import("./connection.ts");
  const { sqliteDatabase } = await import("./database.ts");
  return sqliteDatabase(connect(path, { access, beginWal }));
}

/** How long one try waits, in milliseconds: SQLite waits on this thread, so a signal is noticed between two of them. */
const TRY_MS = 500;

/** A store whose `add` waits for a server's lock as long as it takes, and not only `timeoutMs`. */
function waitForLock(store: PlantStore, { onWait, stop }: LockWait): PlantStore {
  let hasReported = false;

  const add: PlantStore["add"] = async (plants) => {
    for (;;) {
      try {
        return await store.add(plants, { timeoutMs: TRY_MS });
      } catch (error) {
        if (!isLocked(error) || stop.aborted) throw error;
      }
      if (!hasReported) onWait();
      hasReported = true;
      await new Promise((resolve) => setImmediate(resolve));
    }
  };

  return { ...store, add };
}

async function openPlants(path: string): Promise<PlantReader> {
  const { connect } = await import("./connection.ts");
  const { plantReader } = await import("./plants.ts");
  const client = connect(path, { access: "read" });
  const mark = damageMark(path);
  const pageFrom = plantReader(client);
  return {
    async *pages() {
      yield* keysetPages(pageFrom);
      // At the end: a server may have found it meanwhile, and all that can be read is read. A row that SQLite does not
      // reach from the root is missing without an error.
      const finding = mark.finding();
      if (finding !== undefined)
        throw new DatabaseError(`Database "${path}" is damaged (${finding}): plants may be missing`);
    },
    [Symbol.asyncDispose]: async () => client.close(),
  };
}

/**
 * A file that is sound is no longer marked as damaged; it counts as damaged if another process has marked it during the
 * check.
 */
async function check(path: string, { stop, onProgress }: CheckOptions): Promise<CheckResult> {
  // Without a file there is no mark, and the check says what is wrong.
  const clearMark = existsSync(path) ? clearableMark(path) : () => undefined;
  const result = integrityChecker(path).check({ background: false, onProgress });
  // SQLite may be in the middle of a step that takes seconds: the process ends without it.
  const ended = (await withAbort(result, stop)) ?? { type: "stopped" };
  const finding = ended.type === "sound" ? clearMark() : undefined;
  return finding === undefined ? ended : { type: "damaged", finding };
}
