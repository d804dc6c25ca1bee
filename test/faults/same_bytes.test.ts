import { setDefaultTimeout, test } from "bun:test";

import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { sqliteDatabase } from "../../src/database/sqlite/sqlite_database.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../support/program.ts";
import { expectSameBytes } from "./same_bytes.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("SQLite and memory give the same responses, byte for byte, and keep the same plants", async () => {
  using directory = emptyDirectory();
  await using database = sqliteDatabase(connect(directory.at("plants.db")));
  await expectSameBytes(database);
});
