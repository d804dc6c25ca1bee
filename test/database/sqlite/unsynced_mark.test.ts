import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "../../../src/database/sqlite/connection.ts";
import { plantReader, plantWriter } from "../../../src/database/sqlite/plants.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A database with a plant in its WAL, as after an fsync that failed. */
function unsynced() {
  const directory = emptyDirectory();
  const path = join(directory.path, "plants.db");
  // While it is open, the WAL stays.
  const reader = connect(path);
  plantWriter(reader)([{ id: 1n, name: "Fern" }]);
  writeFileSync(`${path}-unsynced`, "");
  return {
    path,
    reader,
    isMarked: () => existsSync(`${path}-unsynced`),
    [Symbol.dispose]() {
      reader.close(true);
      directory[Symbol.dispose]();
    },
  };
}

test("after a failed fsync the first process that may write begins the WAL anew, and removes the mark", () => {
  using database = unsynced();
  using client = connect(database.path, { access: "write" });
  expect(client.query("PRAGMA wal_checkpoint").values()).toEqual([[0n, 1n, 1n]]);
  expect(database.isMarked()).toBe(false);
  expect(plantReader(client)(1n)).toEqual([{ id: 1n, name: "Fern" }]);
});

test("after a failed fsync no process that may write begins beside one that reads", () => {
  using database = unsynced();
  database.reader.run("BEGIN");
  database.reader.query("SELECT 1 FROM plants").get();
  expect(() => connect(database.path, { access: "write", busyTimeoutMs: 50 })).toThrow(
    `Cannot open database "${database.path}": an fsync failed before, and another process reads what that left in the WAL`,
  );
  expect(database.isMarked()).toBe(true);
  database.reader.run("COMMIT");
  connect(database.path, { access: "write" }).close(true);
  expect(database.isMarked()).toBe(false);
});
