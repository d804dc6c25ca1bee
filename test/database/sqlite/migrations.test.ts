import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "../../../src/database/sqlite/connection.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/database.ts";
import { APPLICATION_ID, MIGRATIONS } from "../../../src/database/sqlite/migrations.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, ROOT } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FOLDER = join(ROOT, "drizzle/sqlite");

function sqlFiles(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".sql"))
    .toSorted();
}

test("every migration in the folder is embedded, as it stands there and in order", () => {
  const embedded = MIGRATIONS.map(({ tag, sql }) => ({ file: `${tag}.sql`, sql }));
  const folder = sqlFiles(FOLDER).map((file) => ({ file, sql: readFileSync(join(FOLDER, file), "utf8") }));
  expect(embedded).toEqual(folder);
});

test("drizzle-kit finds nothing in the schema that no migration makes", async () => {
  using copy = emptyDirectory();
  cpSync(FOLDER, join(copy.path, "sqlite"), { recursive: true });
  // It takes `--out` as relative to where it runs.
  const options = ["--dialect", "sqlite", "--schema", join(ROOT, "src/database/sqlite/schema.ts"), "--out", "sqlite"];
  const drizzleKit = [process.execPath, "--bun", join(ROOT, "node_modules/.bin/drizzle-kit")];
  const generate = Bun.spawn([...drizzleKit, "generate", ...options], {
    cwd: copy.path,
    stdout: "pipe",
    stderr: "pipe",
  });
  expect(await new Response(generate.stdout).text()).toContain("No schema changes, nothing to migrate");
  expect(await generate.exited).toBe(0);
  expect(sqlFiles(join(copy.path, "sqlite"))).toEqual(sqlFiles(FOLDER));
});

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
