import { Database } from "bun:sqlite";
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";

import { corruptionMarker } from "../../src/database/sqlite/markers.ts";
import { sqliteAdapter } from "../../src/database/sqlite/sqlite_adapter.ts";
import { INT64_MAX, INT64_MIN } from "../../src/plant/plant.ts";
import { post, TOKEN } from "../support/client.ts";
import { databaseFixture, HOSTILE_PLANTS } from "../support/database_fixture.ts";
import { fern, jsonOf, moss, TEXT } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { openDatabase, withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { exported, runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const PLANTS = [fern(), moss({ id: 2n }), fern({ id: INT64_MIN }), fern({ id: INT64_MAX })];
const lines = (...ids: bigint[]) =>
  ids
    .flatMap((id) => PLANTS.filter((plant) => plant.id === id))
    .map((plant) => `${jsonOf(plant)}\n`)
    .join("");

/** A database with {@linkcode PLANTS}, and the commands on it. */
async function greenhouse() {
  const database = await databaseFixture(PLANTS);
  const plant = (...args: string[]) =>
    runCommand(["plant", ...args], { DATABASE_URL: database.path });
  return { ...database, plant, [Symbol.dispose]: () => database[Symbol.dispose]() };
}

test("plant get prints plants as export does, in the order of their ids on the command line", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  const ids = HOSTILE_PLANTS.map(({ id }) => String(id));
  const got = await runCommand(["plant", "get", ...ids], { DATABASE_URL: database.path });
  expect(got).toMatchObject({ exitCode: 0, stderr: "" });
  expect(got.stdout.split("\n").toSorted()).toEqual(
    (await exported(database.path)).split("\n").toSorted(),
  );

  using other = await greenhouse();
  expect(await other.plant("get", "2", String(INT64_MIN), "1", "2")).toEqual({
    exitCode: 0,
    stdout: lines(2n, INT64_MIN, 1n),
    stderr: "",
  });
});

test("plant get names the ids that have no plant, and exits with 1", async () => {
  using database = await greenhouse();
  const one = `No plant in "${database.path}" has the id 3\n`;
  expect(await database.plant("get", "3")).toEqual({ exitCode: 1, stdout: "", stderr: one });
  expect(await database.plant("get", "1", "-7", "3")).toEqual({
    exitCode: 1,
    stdout: lines(1n),
    stderr: `No plant in "${database.path}" has the ids -7, 3\n`,
  });
});

test("plant count prints how many plants there are", async () => {
  using database = await greenhouse();
  expect(await database.plant("count")).toEqual({ exitCode: 0, stdout: "4\n", stderr: "" });
});

test("plant delete prints what it deletes, and import adds that again", async () => {
  using database = await greenhouse();
  const before = await exported(database.path);
  const deleted = await database.plant("delete", "1", "2", "--yes");
  expect(deleted).toEqual({
    exitCode: 0,
    stdout: lines(1n, 2n),
    stderr: `Deleted 2 plants from "${database.path}"\n`,
  });
  expect(await exported(database.path)).toBe(lines(INT64_MIN, INT64_MAX));

  const file = `${database.path}.ndjson`;
  writeFileSync(file, deleted.stdout);
  const added = await runCommand(["import", file], { DATABASE_URL: database.path });
  expect(added).toMatchObject({ exitCode: 0 });
  expect(await exported(database.path)).toBe(before);
});

test.each(["get 1", "delete 1 --yes"])(
  "plant %s says what a newer version has added, and it does not print",
  async (args) => {
    using database = await greenhouse();
    using client = new Database(database.path);
    client.run("ALTER TABLE plants ADD soil text");
    client.run(
      "INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('1f adds plants.soil', 9e12)",
    );

    const { stdout, stderr } = await database.plant(...args.split(" "));
    expect(stdout).toBe(lines(1n));
    expect(stderr).toContain(
      "has additions of a newer plant-store, which this version ignores: plants.soil\n",
    );
  },
);

test("plant delete deletes what there is, names the rest, and exits with 1", async () => {
  using database = await greenhouse();
  expect(await database.plant("delete", "3", "1", "--yes")).toEqual({
    exitCode: 1,
    stdout: lines(1n),
    stderr: `Deleted 1 plant from "${database.path}"\nNo plant in "${database.path}" has the id 3\n`,
  });
});

test("plant delete deletes nothing that it cannot print", async () => {
  using database = await greenhouse();
  const write = () => Promise.reject(new Error("no space left on device"));
  const environment = { DATABASE_URL: database.path };
  expect(await runCommand(["plant", "delete", "1", "--yes"], environment, { write })).toEqual({
    exitCode: 1,
    stdout: "",
    stderr: "Cannot write the output: no space left on device\n",
  });
  expect(await database.plant("count")).toMatchObject({ stdout: "4\n" });
});

const RANGE = `expected an integer from ${INT64_MIN} to ${INT64_MAX}`;

test.each([
  ["delete 1", "Cannot delete plants without --yes"],
  ["get abc", `Cannot use id abc: ${RANGE}`],
  ["get 1 1.5", `Cannot use id 1.5: ${RANGE}`],
  ["get 9223372036854775808", `Cannot use id 9223372036854775808: ${RANGE}`],
  ["delete 1e3 --yes", `Cannot use id 1e3: ${RANGE}`],
  ["get", "error: missing required argument 'id'\nSee plant-store plant get --help"],
  ["delete --yes", "error: missing required argument 'id'\nSee plant-store plant delete --help"],
])("plant %s is a usage error, and changes nothing", async (args, says) => {
  using database = await greenhouse();
  const ended = await database.plant(...args.split(" "));
  expect(ended).toEqual({ exitCode: 2, stdout: "", stderr: `${says}\n` });
  expect(await database.plant("count")).toMatchObject({ stdout: "4\n" });
});

test.each(["get 1", "delete 1 --yes", "count"])("plant %s creates no database", async (args) => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  const ended = await runCommand(["plant", ...args.split(" ")], { DATABASE_URL: path });
  expect(ended).toEqual({
    exitCode: 1,
    stdout: "",
    stderr: expect.stringMatching(/^Cannot open database ".*": there is no such file[^\n]*\n$/),
  });
});

test("plant get, count and delete work beside a server, and the id is free again", async () => {
  await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
  const { cwd } = server;
  const plant = (...args: string[]) => runToEnd({ cwd, args: ["plant", ...args] });
  expect((await post(server.url, fern())).status).toBe(200);

  expect(await plant("get", "1")).toMatchObject({ exitCode: 0, stdout: lines(1n) });
  expect(await plant("count")).toMatchObject({ exitCode: 0, stdout: "1\n" });
  expect(await plant("delete", "1", "--yes")).toMatchObject({ exitCode: 0, stdout: lines(1n) });

  expect((await post(server.url, fern({ [TEXT]: "other" }))).status).toBe(200);
  expect(await server.stop()).toBe(0);
});

test("a deleted plant is not in the file any more", async () => {
  using database = await greenhouse();
  const secret = "the-name-of-a-deleted-plant";
  {
    await using opened = await sqliteAdapter(database.path).openForWriting();
    await opened.plants.add([fern({ id: 9n, [TEXT]: secret })], { timeoutMs: 5_000 });
  }
  expect(readFileSync(database.path, "latin1")).toContain(secret);
  expect(await database.plant("delete", "9", "--yes")).toMatchObject({ exitCode: 0 });
  expect(readFileSync(database.path, "latin1")).not.toContain(secret);
});

test("in a corrupt database, a plant that is not found may be missing, and nothing is deleted", async () => {
  using database = await greenhouse();
  corruptionMarker(database.path).write("page 7 is gone");
  expect(await database.plant("get", "1")).toEqual({ exitCode: 0, stdout: lines(1n), stderr: "" });

  const stderr = `Database "${database.path}" is corrupt (page 7 is gone): plants may be missing; export prints those that can be read\n`;
  for (const args of [["get", "1", "3"], ["count"]])
    expect(await database.plant(...args)).toEqual({ exitCode: 1, stdout: "", stderr });
  expect(await database.plant("delete", "1", "--yes")).toEqual({
    exitCode: 1,
    stdout: "",
    stderr: expect.stringMatching(/^Cannot open database ".*": it is corrupt [^\n]*\n$/),
  });
});

describe.skipIf(skipsCluster())("on PostgreSQL", () => {
  const cluster = withCluster();

  /** A database with {@linkcode PLANTS}, and the commands on it. */
  async function greenhouseOf() {
    const database = await openDatabase(cluster());
    await database.add(PLANTS);
    const plant = (args: string) =>
      runCommand(["plant", ...args.split(" ")], { DATABASE_URL: database.url });
    return { ...database, plant };
  }

  test("plant get, count and delete do what they do on SQLite", async () => {
    await using database = await greenhouseOf();
    const { name, plant } = database;
    const missing = `No plant in "${name}" has the id 3\n`;
    expect(await plant("get 2 3 1")).toEqual({
      exitCode: 1,
      stdout: lines(2n, 1n),
      stderr: missing,
    });
    expect(await plant("count")).toEqual({ exitCode: 0, stdout: "4\n", stderr: "" });
    expect(await plant(`delete 3 ${INT64_MIN} --yes`)).toEqual({
      exitCode: 1,
      stdout: lines(INT64_MIN),
      stderr: `Deleted 1 plant from "${name}"\n${missing}`,
    });
    expect(await database.run("SELECT id FROM plants ORDER BY id")).toHaveLength(3);
  });

  test("a read-only server, such as a standby, is refused in one line", async () => {
    await using database = await greenhouseOf();
    await database.run(`ALTER DATABASE "${database.name}" SET default_transaction_read_only = on`);
    for (const args of ["get 1", "delete 1 --yes", "count"])
      expect(await database.plant(args), args).toEqual({
        exitCode: 1,
        stdout: "",
        stderr: expect.stringMatching(/^Cannot open database ".*": [^\n]*it is read-only[^\n]*\n$/),
      });
  });
});
