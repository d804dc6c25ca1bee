import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { APPLICATION_ID } from "../../../src/database/sqlite/migrations.ts";
import { COMPANION_SUFFIXES, RESTORE_SUFFIX } from "../../../src/database/sqlite/path.ts";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const page = await Bun.file(join(ROOT, "src/database/sqlite/FILES.md")).text();

/** The names in the first column of the table under a heading. */
function listed(heading: string): string[] {
  const section = page.split(/^## /m).find((part) => part.startsWith(heading)) ?? "";
  return Array.from(section.matchAll(/^\| `([^`]+)`/gm), ([, name = ""]) => name);
}

test("the page on the files lists every file that is kept beside a database", () => {
  const beside = [...COMPANION_SUFFIXES, `${RESTORE_SUFFIX}/`].map(
    (suffix) => `plants.db${suffix}`,
  );
  expect(listed("Files")).toEqual(expect.arrayContaining(beside));
});

test("the page on the files tells what is in a new database", () => {
  using directory = emptyDirectory();
  using client = connect(directory.at("plants.db"));
  const tables = client
    .query("SELECT name FROM sqlite_schema WHERE type = 'table'")
    .values()
    .flat();
  expect(listed("In the database").toSorted()).toEqual(
    ["user_version", ...tables.map(String)].toSorted(),
  );

  expect(page).toContain(`0x${APPLICATION_ID.toString(16)}`);
  const pragma = (name: string) => client.query(`PRAGMA ${name}`).values()[0]?.[0];
  expect(pragma("application_id")).toBe(BigInt(APPLICATION_ID));
  expect(pragma("user_version")).toBe(0n);
  expect(pragma("journal_mode")).toBe("wal");
});
