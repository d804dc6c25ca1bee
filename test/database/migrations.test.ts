import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { getTableColumns } from "drizzle-orm";

import { plants } from "../../src/database/sqlite/schema.ts";
import { PLANT_FIELDS } from "../../src/plant/plant.ts";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

function sqlFiles(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".sql"))
    .toSorted();
}

interface Embedded {
  readonly MIGRATIONS: readonly { readonly tag: string; readonly sql: string }[];
}

describe.each(readdirSync(join(ROOT, "drizzle")).toSorted())("the migrations of %s", (name) => {
  const folder = join(ROOT, "drizzle", name);

  test("every one in the folder is embedded, as it stands there and in order", async () => {
    const { MIGRATIONS }: Embedded = await import(`../../src/database/${name}/migrations.ts`);
    const embedded = MIGRATIONS.map(({ tag, sql }) => ({ file: `${tag}.sql`, sql }));
    const files = sqlFiles(folder).map((file) => ({
      file,
      sql: readFileSync(join(folder, file), "utf8"),
    }));
    expect(embedded).toEqual(files);
  });

  test("drizzle-kit finds nothing in the schema that none of them makes", async () => {
    const { dialect } = await Bun.file(join(folder, "meta/_journal.json")).json();
    using copy = emptyDirectory();
    cpSync(folder, join(copy.path, name), { recursive: true });

    // It takes `--out` as relative to where it runs.
    const options = [
      "--dialect",
      dialect,
      "--schema",
      join(ROOT, `src/database/${name}/schema.ts`),
      "--out",
      name,
    ];

    const drizzleKit = [process.execPath, "--bun", join(ROOT, "node_modules/.bin/drizzle-kit")];
    const generate = Bun.spawn([...drizzleKit, "generate", ...options], {
      cwd: copy.path,
      stdout: "pipe",
      stderr: "pipe",
    });
    expect(await new Response(generate.stdout).text()).toContain(
      "No schema changes, nothing to migrate",
    );
    expect(await generate.exited).toBe(0);
    expect(sqlFiles(join(copy.path, name))).toEqual(sqlFiles(folder));
  });
});

// The module's store writes its statements without Drizzle, and a file that is only read may lack a
// column: both know a column by the name of its field. PostgreSQL's statements follow the schema.
test("SQLite's schema names each column of a plant as its field", () => {
  const names = Object.values(getTableColumns(plants)).map(({ name }) => name);
  expect(names.toSorted()).toEqual(["id", ...PLANT_FIELDS].toSorted());
});
