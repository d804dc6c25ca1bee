import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { connect } from "../../../src/database/sqlite/connection.ts";
import { damageMark } from "../../../src/database/sqlite/damage_mark.ts";
import { sqliteAdapter } from "../../../src/database/sqlite/adapter.ts";
import { databaseFixture, HOSTILE_PLANTS } from "../../support/database_fixture.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** The mark beside a file, as JSON, with some of it replaced. */
function rewriteMark(path: string, change: (file: string) => string): void {
  const mark = JSON.parse(readFileSync(`${path}-damaged`, "utf8")) as { file: string };
  writeFileSync(`${path}-damaged`, JSON.stringify({ ...mark, file: change(mark.file) }));
}

/** Replaces the file at this path by a copy of it, as somebody does who restores a backup. */
function replace(path: string): void {
  copyFileSync(path, `${path}-copy`);
  renameSync(`${path}-copy`, path);
}

test("damageMark() refuses the file that it is about, and no other at its path", async () => {
  using database = await databaseFixture([]);
  damageMark(database.path).write("a page\nis gone");
  expect(() => connect(database.path)).toThrow(
    `Cannot open database "${database.path}": it is damaged (a page is gone); restore a backup, or check it: plant-store check`,
  );
  replace(database.path);
  connect(database.path).close();
});

test("damageMark() counts whatever number the device has: after a boot or a mount it can be another one", async () => {
  using database = await databaseFixture([]);
  damageMark(database.path).write("found before");
  // As marks had it before.
  rewriteMark(database.path, (file) => `4711:${file.split(":").slice(-2).join(":")}`);
  expect(damageMark(database.path).finding()).toBe("found before");
  rewriteMark(database.path, (file) => file.split(":").slice(-2).join(":"));
  expect(damageMark(database.path).finding()).toBe("found before");
  rewriteMark(database.path, (file) => `1${file}`);
  expect(damageMark(database.path).finding()).toBeUndefined();
});

test.each(["", "null", "5", "[]", "{}", '{"file":5}', '{"file":'])(
  "a mark that is %j marks nothing",
  async (content) => {
    using database = await databaseFixture([]);
    writeFileSync(`${database.path}-damaged`, content);
    expect(damageMark(database.path).finding()).toBeUndefined();
  },
);

/** Checks a sound database, and does something else in the meantime. Resolves to the result. */
async function checkDuring(path: string, act: () => void) {
  let hasActed = false;
  const onProgress = () => {
    if (!hasActed) act();
    hasActed = true;
  };
  const result = await sqliteAdapter(path).check({ stop: new AbortController().signal, onProgress });
  expect(hasActed).toBe(true);
  return result;
}

test("a check that finds nothing removes the mark that was there before", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  damageMark(database.path).write("found before");
  expect(await checkDuring(database.path, () => {})).toMatchObject({ type: "sound", plants: HOSTILE_PLANTS.length });
  expect(existsSync(`${database.path}-damaged`)).toBe(false);
});

test("a check that finds nothing keeps a mark that was written in the meantime, and says what it says", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  for (const finding of ["found by a server", "found again"]) {
    const result = await checkDuring(database.path, () => damageMark(database.path).write(finding));
    expect(result).toEqual({ type: "damaged", finding });
    expect(damageMark(database.path).finding()).toBe(finding);
  }
});

test("a check that finds nothing keeps the mark of a file that has replaced the checked one", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  // The mark of the file to come, which is at another path until then.
  copyFileSync(database.path, `${database.path}-new`);
  damageMark(`${database.path}-new`).write("found before");
  renameSync(`${database.path}-new-damaged`, `${database.path}-damaged`);
  const result = await checkDuring(database.path, () => renameSync(`${database.path}-new`, database.path));
  expect(result).toMatchObject({ type: "sound" });
  expect(damageMark(database.path).finding()).toBe("found before");
});
