import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { connect } from "../../../src/database/sqlite/connection.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/database.ts";
import { APPLICATION_ID, MIGRATIONS } from "../../../src/database/sqlite/migrations.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("a token from before there were scopes keeps both of them", async () => {
  using directory = emptyDirectory();
  const path = join(directory.path, "plants.db");
  makeDatabaseWithoutScopes(path, "greenhouse");
  await using database = sqliteDatabase(connect(path));
  expect(await database.tokens.list()).toMatchObject([{ name: "greenhouse", scopes: ["write", "metrics"] }]);
});

/** A database with a token, as a plant-store with the first two migrations left it. */
function makeDatabaseWithoutScopes(path: string, name: string): void {
  using client = new Database(path);
  client.run("CREATE TABLE __drizzle_migrations (id INTEGER PRIMARY KEY, hash text NOT NULL, created_at numeric)");
  for (const { sql, when } of MIGRATIONS.slice(0, 2)) {
    client.run(sql);
    client.run("INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('', ?)", [when]);
  }
  client.run(`PRAGMA application_id = ${APPLICATION_ID}`);
  client.run("INSERT INTO tokens (name, digest, created_at) VALUES (?, ?, ?)", [name, new Uint8Array(32), Date.now()]);
}
