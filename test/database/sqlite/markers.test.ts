import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, existsSync, renameSync, writeFileSync } from "node:fs";

import { DatabaseError } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { corruptionMarker } from "../../../src/database/sqlite/markers.ts";
import { sqliteAdapter } from "../../../src/database/sqlite/sqlite_adapter.ts";
import { databaseFixture, HOSTILE_PLANTS } from "../../support/database_fixture.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("corruptionMarker() refuses the file that it is about, and no other at its path", async () => {
  using database = await databaseFixture([]);
  corruptionMarker(database.path).write("a page\nis gone");
  expect(() => connect(database.path)).toThrow(
    `Cannot open database "${database.path}": it is corrupt (a page is gone); restore a backup, or check it: plant-store check`,
  );

  // As an operator restores a backup.
  copyFileSync(database.path, `${database.path}-copy`);
  renameSync(`${database.path}-copy`, database.path);
  connect(database.path).close();
});

test.each(["", "null", "5", "[]", "{}", '{"file":5}', '{"file":'])(
  "a marker that holds %j marks nothing",
  async (content) => {
    using database = await databaseFixture([]);
    writeFileSync(`${database.path}-corrupt`, content);
    expect(corruptionMarker(database.path).finding()).toBeUndefined();
  },
);

/** Checks a sound database, and does something else in the meantime. Resolves to the result. */
async function checkDuring(path: string, act: () => void) {
  const acts = [act];
  const onProgress = () => acts.pop()?.();
  const checking = sqliteAdapter(path).check({ stop: new AbortController().signal, onProgress });
  return checking.finally(() => expect(acts).toEqual([]));
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
        `"${database.path}" is corrupt: ${finding}; save what can be read: plant-store export; then restore a backup`,
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

  const result = await checkDuring(database.path, () =>
    renameSync(`${database.path}-new`, database.path),
  );
  expect(result).toMatchObject({ plants: HOSTILE_PLANTS.length });
  expect(corruptionMarker(database.path).finding()).toBe("found before");
});
