import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { withAbort } from "../../async/deadline.ts";
import { eventLoopTurn } from "../../async/timers.ts";
import { ConfigError } from "../../errors.ts";
import type { CheckOptions, CheckResult, DatabaseAdapter, LockWait } from "../adapter.ts";
import type { Database, PlantStore } from "../database.ts";
import { corruptionMarker } from "./fail_stop.ts";
import { isLocked, withDatabaseError } from "./errors.ts";
import { checkFile } from "./integrity.ts";
import { openSqliteWorker } from "./worker_client.ts";

/** The adapter of a SQLite database. Loads what a server does not need only when it is used. */
export function sqliteAdapter(path: string): DatabaseAdapter {
  return {
    name: path,
    flag: `--database ${resolve(path)}`,
    maxInFlight: 1,
    openForServing: (options) => openSqliteWorker(path, options),
    async openForWriting({ create = false, onCreate, bulk } = {}) {
      const isNew = create && !existsSync(path);
      const database = await openHere(path, create ? "create" : "write", bulk !== undefined);
      if (isNew) onCreate?.();
      return bulk === undefined ? database : { ...database, plants: waitForLock(database.plants, bulk) };
    },
    openPlants: async () => (await import("./plants.ts")).openPlants(path),
    // May write: a database of an older version has to be migrated first.
    openTokens: () => openHere(path, "write", false),
    check: (options) => checkWithMarker(path, options),
    async backup(target, options) {
      const { backupSqlite } = await import("./backup.ts");
      return backupSqlite(path, target, options);
    },
    async restore(source, options) {
      const { restoreSqlite } = await import("./backup.ts");
      return restoreSqlite(path, source, options);
    },
    async migrate() {
      throw new ConfigError("Cannot migrate a SQLite database: every command that writes to it migrates it");
    },
  };
}

/** Opens a database on this thread. */
async function openHere(path: string, access: "create" | "write", resetsWal: boolean): Promise<Database> {
  const { connect } = await import("./connection.ts");
  const { sqliteDatabase } = await import("./database.ts");
  return sqliteDatabase(connect(path, { access, resetsWal }));
}

/** How long one attempt waits, in milliseconds: SQLite blocks this thread, so a signal has to wait until it ends. */
const TRY_MS = 500;

/** A store whose `add` waits for the lock of a server as long as necessary, not only `timeoutMs`. */
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
      await eventLoopTurn();
    }
  };

  return { ...store, add };
}

/**
 * Checks a file, and removes its corruption marker if the file is sound. A file that another process marks during the
 * check counts as corrupt.
 */
async function checkWithMarker(path: string, { stop, onProgress }: CheckOptions): Promise<CheckResult> {
  const marker = withDatabaseError("open", path, () => corruptionMarker(path));
  const before = marker.content();
  // A step of SQLite can take seconds: after a signal the process does not wait for it.
  const result = (await withAbort(checkFile(path, onProgress), stop)) ?? { type: "stopped" };
  if (result.type !== "sound") return result;
  marker.clear(before);
  const finding = marker.finding();
  return finding === undefined ? result : { type: "corrupt", finding };
}
