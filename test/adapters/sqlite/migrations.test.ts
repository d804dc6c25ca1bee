import { expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { MIGRATIONS } from "../../../src/adapters/sqlite/migrations.ts";
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
  const options = ["--dialect", "sqlite", "--schema", join(ROOT, "src/adapters/sqlite/schema.ts"), "--out", "sqlite"];
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
