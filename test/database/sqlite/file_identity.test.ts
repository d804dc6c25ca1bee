import { expect, setDefaultTimeout, test } from "bun:test";
import { rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { connect } from "../../../src/database/sqlite/connection.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/database.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const fern = { id: 1n, name: "Fern" };

// SQLite puts the WAL beside the file, not beside the link.
test("a WAL that is removed is noticed, also where the path is a symbolic link", async () => {
  using directory = emptyDirectory();
  const [file, link] = [join(directory.path, "real.db"), join(directory.path, "plants.db")];
  connect(file).close();
  symlinkSync(file, link);
  await using database = sqliteDatabase(connect(link));
  const add = () => database.plants.add([fern], { timeoutMs: 1_000 });
  expect(await add()).toEqual(["added"]);
  expect(database.metrics().find(({ name }) => name === "plant_store_wal_bytes")?.value).toBeGreaterThan(0);
  rmSync(`${file}-wal`);
  await expect(add()).rejects.toMatchObject({ code: "storage_unavailable" });
});
