import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";

import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { corruptionIn } from "../../../src/database/sqlite/errors.ts";
import { checkIntegrity, checkWhole } from "../../../src/database/sqlite/integrity.ts";
import { addPlants } from "../../support/add_plants.ts";
import { type Damage, damage, DAMAGES, makeLargeDatabase } from "../../support/damage.ts";
import { HOSTILE_PLANTS, openWorker } from "../../support/database_fixture.ts";
import { fern, TEXT } from "../../support/plants.ts";
import { emptyDirectory, memoryDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const PLANTS = 30_000;

let bytesOfSound: Buffer | undefined;

/**
 * A directory with a large database without damage, which is made and checked once; gone at the end
 * of the scope.
 */
function soundDatabase() {
  const directory = emptyDirectory(memoryDirectory());
  const path = directory.at("plants.db");

  if (bytesOfSound === undefined) {
    makeLargeDatabase(path, PLANTS);
    expect([findingIn(path, false), findingIn(path, true)]).toEqual([undefined, undefined]);
    bytesOfSound = readFileSync(path);
  }

  writeFileSync(path, bytesOfSound);
  return { path, [Symbol.dispose]: () => directory[Symbol.dispose]() };
}

/** What a check of these pages says. */
function findingIn(path: string, whole: boolean): string | undefined {
  using client = connect(path, { access: "read" });
  try {
    if (whole) checkWhole(client);
    else for (const _ of checkIntegrity(client));
    return undefined;
  } catch (error) {
    return corruptionIn(error);
  }
}

test.each(Object.keys(DAMAGES) as Damage[])(
  "a check finds %s in the whole file, and without reading it at once",
  (what) => {
    using sound = soundDatabase();
    damage(sound.path, what);
    // Which range of the plants it is depends on how fast the machine is.
    const finding = what.includes("of tokens") ? /^token[^\n]*: [^\n]+$/ : /^plants[^\n]*: [^\n]+$/;
    expect(findingIn(sound.path, false)).toMatch(finding);
    // One finding in one line.
    expect(findingIn(sound.path, true)).toMatch(/^[^\n]{10,150}$/);
  },
);

test("checkIntegrity() finds damage in the list of free pages without reading the whole at once", () => {
  using sound = soundDatabase();
  {
    using client = connect(sound.path);
    client.run("DELETE FROM plants");
  }

  const bytes = readFileSync(sound.path);
  // The number of free pages: https://www.sqlite.org/fileformat.html#the_database_header
  bytes.writeUInt32BE(bytes.readUInt32BE(36) + 1, 36);
  writeFileSync(sound.path, bytes);

  expect(findingIn(sound.path, false)).toMatch(
    /^sqlite_schema: .*Freelist: size is \d+ but should be \d+$/,
  );
});

test("checkIntegrity() counts every plant of a sound database once, in more than one range", () => {
  using sound = soundDatabase();
  using client = connect(sound.path);
  addPlants(client)(HOSTILE_PLANTS);
  const steps = checkIntegrity(client);
  const counts = new Set<number>();
  let step = steps.next();
  for (; step.done !== true; step = steps.next()) counts.add(step.value);
  expect(step.value).toBe(PLANTS + HOSTILE_PLANTS.length);
  expect(counts.size).toBeGreaterThan(3);
});

test("checkIntegrity() holds no read transaction between its steps", () => {
  using sound = soundDatabase();
  using writer = connect(sound.path);
  using reader = connect(sound.path, { access: "read" });
  const add = addPlants(writer);
  let id = 0n;

  for (const _ of checkIntegrity(reader)) {
    add([fern({ id: --id })]);
    // Not busy: all of the WAL is moved, and it begins anew.
    expect(writer.query("PRAGMA wal_checkpoint(TRUNCATE)").values()).toEqual([[0n, 0n, 0n]]);
  }

  expect(id).toBeLessThan(-3n);
});

test("a check takes a row without a field that an older version did not require", () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  using older = connect(path);
  older.run("DROP TABLE plants");
  older.run(`CREATE TABLE plants (id INTEGER PRIMARY KEY NOT NULL, "${TEXT}" ANY) STRICT`);
  older.run("INSERT INTO plants VALUES (1, NULL)");
  expect([findingIn(path, false), findingIn(path, true)]).toEqual([undefined, undefined]);

  older.run("INSERT INTO plants VALUES (2, x'00')");
  expect(findingIn(path, false)).toMatch(/^plants: the row of id 2 .* a value of another kind$/);
});

test("the check beside a server does not call a database corrupt whose WAL was removed", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  {
    using client = connect(path);
    addPlants(client)([fern()]);
  }
  const warning = Promise.withResolvers<unknown[]>();
  await using database = await openWorker(path, {
    onWarning: (...problem) => warning.resolve(problem),
  });
  // Its page is in the WAL, and no page that opening the database reads.
  await database.plants.add([fern({ id: 2 })], { timeoutMs: TEST_TIMEOUT_MS });

  rmSync(`${path}-wal`);
  const failed = database.failed.then(({ message }) => [message]);
  expect(await Promise.race([warning.promise, failed])).toEqual([
    "Integrity check not finished",
    { reason: expect.stringContaining("unable to get the page. error code=522") },
  ]);
  const refusal = await database.plants.probe().catch(({ message }: Error) => message);
  expect(refusal).toBe("storage is gone; send the plant again later");
  expect(existsSync(`${path}-corrupt`)).toBe(false);
});

const REPLACEMENTS: [string, (path: string) => void][] = [
  ["a damaged one", (path) => damage(path, "a zeroed page in the middle" satisfies Damage)],
  ["text", (path) => writeFileSync(path, "This is no database.".repeat(100))],
  ["a sound one", () => {}],
];

test.each(REPLACEMENTS)(
  "the check beside a server says nothing of a file that was replaced by %s",
  async (_, make) => {
    using sound = soundDatabase();
    const other = `${sound.path}-other`;
    copyFileSync(sound.path, other);
    make(other);

    const warning = Promise.withResolvers<unknown[]>();
    const messages: string[] = [];
    await using database = await openWorker(sound.path, {
      onWarning: (...problem) => warning.resolve(problem),
      onInfo: (message) => void messages.push(message),
    });

    renameSync(other, sound.path);
    const failed = database.failed.then(({ message }) => [message]);
    expect(await Promise.race([warning.promise, failed])).toEqual([
      "Integrity check not finished",
      { reason: "the file was removed or replaced" },
    ]);
    expect(messages).toEqual(["Integrity check started"]);
    // Not by `rejects`, which blocks this thread: Bun then delivers nothing while a Worker ends.
    const refusal = await database.plants.probe().catch(({ message }: Error) => message);
    expect(refusal).toBe("storage is gone; send the plant again later");
    expect(existsSync(`${sound.path}-corrupt`)).toBe(false);
  },
);
