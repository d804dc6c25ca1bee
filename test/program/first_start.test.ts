import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";

import { post, TOKEN } from "../support/client.ts";
import { fern } from "../support/plants.ts";
import {
  emptyDirectory,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
  USER,
} from "../support/program.ts";
import { shell } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const PRODUCTION = { NODE_ENV: "production", AUTH_TOKENS: TOKEN };
const FERN = fern();

/** A directory, and the program in it. */
function world() {
  const directory = emptyDirectory();
  const database = directory.at("plants.db");
  const run = (args: string, env = {}) =>
    runToEnd({ cwd: directory.path, args: args.split(" "), env });
  return { ...directory, database, run, serve: () => run("serve --port 0", PRODUCTION) };
}

/** The lines of a server's log that say that it created a database. */
async function creationsOf(server: Awaited<ReturnType<typeof startServer>>): Promise<unknown[]> {
  await server.stop();
  const lines = (await server.stderr.end).split("\n").filter((line) => line.startsWith("{"));
  return lines
    .map((line) => JSON.parse(line) as { level: string; message: string })
    .filter(({ message }) => message.startsWith("Initialized empty database"));
}

/**
 * Leaves a database as a crash does before its first checkpoint: one page, with all else in its
 * WAL.
 */
function youngDatabase(path: string): void {
  const database = new Database(path);
  database.run("PRAGMA journal_mode = WAL");
  database.run("PRAGMA user_version = 0");
  database.close(true);
}

test.concurrent(
  "in production a server creates no database, and says what does, whatever its path has",
  async () => {
    using here = world();
    const cwd = here.at("our $HOME's 'plants'");
    mkdirSync(cwd, { mode: 0o700 });
    const env = { NODE_ENV: "production" };
    const { stderr, ...refused } = await runToEnd({ cwd, env, args: ["serve", "--port", "0"] });
    expect(refused).toEqual({ exitCode: 1, stdout: "" });
    expect(readdirSync(cwd)).toEqual([]);

    const says = `Cannot open database "plants.db": there is no such file: mount its disk, or choose another with --database; for a new database run as ${USER}: plant-store `;
    expect(stderr).toStartWith(says);
    const program = shell(`"$@" ${stderr.slice(says.length).trimEnd()}`);
    expect(await runToEnd({ cwd: here.path, program })).toMatchObject({ exitCode: 0 });
    expect(readdirSync(cwd)).toContain("plants.db");
  },
);

test.concurrent.each([
  [
    "migrate",
    /^Initialized empty database "\/.+\/plants\.db"\nApplied 0000_plants_and_tokens\n(?:Applied \w+\n)+$/,
  ],
  [
    "token create greenhouse",
    /^Initialized empty database "\/.+\/plants\.db"\.\nCreated token "greenhouse" /,
  ],
])("after `%s` it starts, and says nothing of a new database", async (command, says) => {
  using here = world();
  expect(await here.run(command)).toEqual({
    exitCode: 0,
    stdout: expect.any(String),
    stderr: expect.stringMatching(says),
  });

  await using server = await startServer({ cwd: here.path, env: PRODUCTION });
  expect((await post(server.url, FERN)).status).toBe(200);
  expect(await creationsOf(server)).toEqual([]);
});

test.concurrent(
  "elsewhere a server warns once that it created a database, with its path",
  async () => {
    using here = world();
    for (const created of [
      [{ level: "INFO", message: `Initialized empty database "${here.database}"` }],
      [],
    ]) {
      await using server = await startServer({ cwd: here.path });
      expect(await creationsOf(server)).toMatchObject(created);
    }
  },
);

test.concurrent.each<[string, (path: string) => void]>([
  ["a file without a byte", (path) => writeFileSync(path, "")],
  [
    "a young database whose WAL was cut to nothing",
    (path) => {
      youngDatabase(path);
      writeFileSync(`${path}-wal`, "");
    },
  ],
])("%s counts as no database", async (_what, make) => {
  using here = world();
  make(here.database);

  expect(await here.serve()).toEqual({
    exitCode: 1,
    stdout: "",
    stderr: `Cannot open database "plants.db": it is empty: no plant-store has created its tables yet; if nothing was ever stored, run as ${USER}: plant-store migrate --database ${here.database}\n`,
  });

  await using server = await startServer({ cwd: here.path });
  expect(await creationsOf(server)).toMatchObject([{ level: "INFO" }]);
});

test.concurrent(
  "migrate says that there is nothing to do, and a dry run creates nothing",
  async () => {
    using here = world();
    const planned = await here.run("migrate --dry-run");
    expect(planned).toMatchObject({ exitCode: 0, stderr: "" });
    expect(existsSync(here.database)).toBe(false);

    // What it prints makes the same database.
    {
      using database = new Database(here.database);
      database.run(planned.stdout);
    }

    for (const command of ["migrate --dry-run", "migrate"])
      expect(await here.run(command)).toEqual({
        exitCode: 0,
        stdout: "",
        stderr: "Nothing to do: the schema is up to date\n",
      });
    await using server = await startServer({ cwd: here.path, env: PRODUCTION });
    expect((await post(server.url, FERN)).status).toBe(200);
  },
);
