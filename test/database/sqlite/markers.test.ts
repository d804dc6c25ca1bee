import { expect, setDefaultTimeout, test } from "bun:test";
import {
  copyFileSync,
  cpSync,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";

import { DatabaseError } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { checkSqlite } from "../../../src/database/sqlite/check.ts";
import { corruptionMarker } from "../../../src/database/sqlite/markers.ts";
import { databaseFixture, HOSTILE_PLANTS } from "../../support/database_fixture.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, USER } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What this program writes, and what a crash leaves of it. */
const MARKERS: [content: string, finding: string][] = [
  ['{"finding":"page 7 is gone","foundAt":""}', "page 7 is gone"],
  ...["", "null", "5", "[]", "{}", '{"finding":5}', '{"finding":'].map(
    (content): [string, string] => [content, "an earlier check or request found that"],
  ),
];

test.each(MARKERS)("a marker that holds %j marks the file beside it", async (content, finding) => {
  using database = await databaseFixture([]);
  writeFileSync(`${database.path}-corrupt`, content);
  expect(() => connect(database.path)).toThrow(
    `Cannot open database "${database.path}": it is corrupt (${finding}); restore a backup, or run as ${USER}: plant-store check --database ${database.path}`,
  );

  await checkDuring(database.path, () => {});
  connect(database.path).close();
});

test("a file that was found corrupt stays so in a copy of its directory", async () => {
  using database = await databaseFixture([]);
  using disk = emptyDirectory();
  corruptionMarker(database.path).write("a page\nis gone");
  cpSync(database.directory, disk.at("copy"), { recursive: true, preserveTimestamps: true });

  const copy = disk.at("copy/plants.db");
  for (const open of [() => connect(copy), () => connect(copy, { access: "write" })])
    expect(open).toThrow(`Cannot open database "${copy}": it is corrupt (a page is gone); restore`);
  expect(JSON.parse(readFileSync(`${copy}-corrupt`, "utf8"))).toEqual({
    finding: "a page is gone",
    foundAt: expect.stringMatching(/^\d{4}-.*Z$/),
  });
});

test("no file is created beside the marker of one that is gone", async () => {
  using database = await databaseFixture([]);
  corruptionMarker(database.path).write("a page is gone");
  rmSync(database.path);
  expect(() => connect(database.path)).toThrow("it is corrupt (a page is gone); restore a backup");
  expect(existsSync(database.path)).toBe(false);
});

test("a finding about a file that is no longer at its path marks no other", async () => {
  using database = await databaseFixture([]);
  const marker = corruptionMarker(database.path);
  copyFileSync(database.path, `${database.path}-copy`);
  renameSync(`${database.path}-copy`, database.path);
  marker.write("a page is gone");
  connect(database.path).close();
});

/** Checks a sound database, and does something else in the meantime. Resolves to the result. */
async function checkDuring(path: string, act: () => void) {
  const checking = checkSqlite(path, { stop: new AbortController().signal });
  // The check has read the marker, and waits for its Worker.
  act();
  return await checking;
}

test("a check that finds nothing removes the marker that was there before", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  corruptionMarker(database.path).write("found before");
  expect(await checkDuring(database.path, () => {})).toMatchObject({
    plants: HOSTILE_PLANTS.length,
  });
  expect(existsSync(`${database.path}-corrupt`)).toBe(false);
});

test("a check that finds nothing keeps a marker that was written in the meantime, and says what it says", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  for (const finding of ["found by a server", "found again"]) {
    const result = checkDuring(database.path, () => corruptionMarker(database.path).write(finding));
    await expect(result).rejects.toEqual(
      new DatabaseError(
        `"${database.path}" is corrupt: ${finding}; to save what can be read before you restore a backup, run as ${USER}: plant-store export --database ${database.path} > rest.ndjson`,
      ),
    );
    expect(corruptionMarker(database.path).finding()).toBe(finding);
  }
});

test("a check that finds nothing keeps the marker of a file that has replaced the checked one", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  // The marker of the file to come, which is at another path until then.
  copyFileSync(database.path, `${database.path}-new`);
  corruptionMarker(`${database.path}-new`).write("found before");
  renameSync(`${database.path}-new-corrupt`, `${database.path}-corrupt`);

  const result = checkDuring(database.path, () =>
    renameSync(`${database.path}-new`, database.path),
  );
  await expect(result).rejects.toThrow(`"${database.path}" is corrupt: found before; to save`);
  expect(corruptionMarker(database.path).finding()).toBe("found before");
});
