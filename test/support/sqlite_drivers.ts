import { existsSync, openSync } from "node:fs";

import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { drizzleRows } from "../../src/database/sqlite/sqlite_database.ts";
import { type SqliteStore, sqliteStore } from "../../src/database/sqlite/sqlite_store.ts";
import { openStore } from "../../src/database/sqlite/store.ts";
import { fern } from "./plants.ts";

/** The store of SQLite on each of its drivers, on this thread. */
export const DRIVERS: Readonly<Record<string, (path: string) => Promise<SqliteStore>>> = {
  async "bun:sqlite"(path) {
    const connection = connect(path, { resetsWal: true });
    return openStore(connection, {
      statements: drizzleRows(connection),
      lockTimeoutMs: 1_000,
      walBytes: new Float64Array(1),
    });
  },
  // The line that tells of a new database is not these tests' subject.
  async "node:sqlite"(path) {
    if (!existsSync(path)) connect(path).close();
    return await sqliteStore(path, { create: false });
  },
};

// As a program of its own, on a disk that fails: stores plants until the store has failed.
if (import.meta.main) {
  const [driver = "", path = "", limit] = process.argv.slice(2);
  const store = await DRIVERS[driver]?.(path);
  if (limit === "no descriptors") takeDescriptors();
  let acknowledged = 0;
  let isOpen = true;
  void store?.failed.then(() => (isOpen = false));

  for (let id = 0n; id < 100n; id++) {
    if (!isOpen) break;
    await store?.add([fern({ id })], { timeoutMs: 1_000 }).then(
      () => acknowledged++,
      () => {},
    );
  }

  console.log(acknowledged);
  store?.close();
}

/** Leaves this process no file descriptor. */
function takeDescriptors(): void {
  try {
    for (;;) openSync("/dev/null", "r");
  } catch {
    // That was the last one.
  }
}
