import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";

import { SCOPES } from "../../src/auth/authenticate.ts";
import { untilTokenIs } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import {
  emptyDirectory,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
  USER,
} from "../support/program.ts";
import { shell } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A directory of its own, and `plant-store token` in it. */
function world() {
  const directory = emptyDirectory();
  const cwd = directory.path;
  const token = (...args: string[]) => runToEnd({ cwd, args: ["token", ...args] });

  return {
    ...directory,
    cwd,
    token,
    /** Creates a token of this name. */
    async create(name: string): Promise<string> {
      const { exitCode, stdout } = await token("create", name);
      expect(exitCode).toBe(0);
      return stdout.trim();
    },
    list: async () => JSON.parse((await token("list", "--json")).stdout),
  };
}

test.concurrent(
  "a running server accepts a new token, and refuses a revoked one, within seconds",
  async () => {
    using here = world();
    await runToEnd({ cwd: here.cwd, args: ["migrate"] });
    await using server = await startServer({ cwd: here.cwd, env: { NODE_ENV: "production" } });
    const created = await here.token("create", "greenhouse", "--expires", "90d");
    expect(created.stdout).toMatch(/^plant_\w{38}\n$/);

    const token = created.stdout.trim();
    await untilTokenIs(200, server.url, token);
    expect((await here.token("revoke", "greenhouse")).exitCode).toBe(0);

    await untilTokenIs(401, server.url, token);
    // The server writes its last use from time to time.
    while ((await here.list())[0].lastUsed === null);
    expect(await here.list()).toEqual([
      {
        name: "greenhouse",
        status: "revoked",
        scopes: SCOPES,
        created: expect.stringMatching(/Z$/),
        expires: expect.stringMatching(/Z$/),
        lastUsed: expect.stringMatching(/:00\.000Z$/),
        revoked: expect.stringMatching(/Z$/),
      },
    ]);
  },
);

test.concurrent(
  "a running server refuses a revoked token, even while no use of a token can be written",
  async () => {
    using here = world();
    const token = await here.create("greenhouse");
    {
      // From now on every write of a use fails, and everything else goes on.
      using database = new Database(here.at("plants.db"));
      const fail = "BEGIN SELECT RAISE(ABORT, 'no uses'); END";
      database.run(`CREATE TRIGGER refuse_uses BEFORE UPDATE OF last_used_at ON tokens ${fail}`);
    }

    await using server = await startServer({ cwd: here.cwd });
    await untilTokenIs(200, server.url, token);

    await server.stderr.until(/Cannot record when tokens were last used/);
    expect((await here.token("revoke", "greenhouse")).exitCode).toBe(0);

    await untilTokenIs(401, server.url, token);
    await server.stderr.until(/"greenhouse\\?" is revoked/);
  },
);

test.concurrent(
  "the last use of a token is not lost if the server stops right after it",
  async () => {
    using here = world();
    const token = await here.create("greenhouse");
    await using server = await startServer({ cwd: here.cwd });
    await untilTokenIs(200, server.url, token);
    expect(await server.stop()).toBe(0);
    expect(await here.list()).toMatchObject([
      { name: "greenhouse", lastUsed: expect.stringMatching(/:00\.000Z$/) },
    ]);
  },
);

test.concurrent("a token goes to stdout only", async () => {
  using here = world();
  const { stdout, stderr } = await here.token("create", "greenhouse");
  expect(stdout).toMatch(/^plant_\w{38}\n$/);
  expect(stderr).toMatch(
    /^Initialized empty database "[^\n]+"\.\nCreated token "greenhouse" [^\n]+\n$/,
  );
});

test.concurrent(
  "neither the database nor token list, a table with a header, holds a token",
  async () => {
    using here = world();
    const token = await here.create("greenhouse");
    const file = readFileSync(here.at("plants.db"));
    expect(file.includes("greenhouse")).toBe(true);
    expect(file.includes(token.slice("plant_".length, -6))).toBe(false);

    const { stdout } = await here.token("list");
    const [header, row, ...rest] = stdout.trimEnd().split("\n");
    expect(header).toMatch(
      /^NAME +STATUS +SCOPES +CREATED \(UTC\) +EXPIRES \(UTC\) +LAST USED \(UTC\)$/,
    );
    expect(row?.split(/ {2,}/)).toEqual([
      "greenhouse",
      "active",
      SCOPES.join(" "),
      expect.stringMatching(/^\d{4}-\d\d-\d\d \d\d:\d\d$/),
      "-",
      "-",
    ]);
    expect(rest).toEqual([]);
  },
);

test.concurrent.each(["99999h", "36500d"])(
  "token create accepts a lifetime of %s",
  async (expires) => {
    using here = world();
    expect(await here.token("create", "greenhouse", "--expires", expires)).toMatchObject({
      exitCode: 0,
      stderr: expect.stringMatching(/It expires \d{4}-/),
    });
  },
);

/** Where there is one token, named "taken", for the tests that change nothing. */
const home = world();
beforeAll(() => home.create("taken"));
afterAll(() => home[Symbol.dispose]());

const refused: [string[], number, string][] = [
  [["create", "a b"], 2, 'Cannot use token name "a b"'],
  [["create", "x".repeat(65)], 2, "Cannot use token name"],
  ...["0d", "90", "2w", "36501d"].map((expires): [string[], number, string] => [
    ["create", "greenhouse", "--expires", expires],
    2,
    `Cannot use --expires ${expires}: expected a number and its unit, such as 90d: m, h or d for minutes, hours or days; at most 36500d`,
  ]),
  [
    ["create", "taken"],
    1,
    'Cannot create token "taken" in "plants.db": the name is taken; if nobody has its secret, run',
  ],
  [["revoke", "nobody"], 1, 'Cannot revoke token "nobody" in "plants.db": no token has this name'],
  [
    ["list", "--database", "file:missing.db"],
    1,
    'Cannot open database "missing.db": there is no such file: mount its disk, or choose another with --database; for',
  ],
  // It is not called created.
  [
    ["create", "x", "--database", "missing/too/plants.db"],
    1,
    'Cannot open database "missing/too/plants.db": there is no such',
  ],
];

test.concurrent.each(refused)("token %p exits with %d", async (args, exitCode, says) => {
  const run = await home.token(...args);
  expect(run).toEqual({
    exitCode,
    stdout: "",
    stderr: expect.stringMatching(new RegExp(`^${RegExp.escape(says)}`)),
  });
});

/** Runs the program with its standard output on a full disk. */
function runOnFullDisk(cwd: string, ...args: string[]) {
  const program = ["sh", "-c", '"$@" > /dev/full', "sh", ...executable()];
  return runToEnd({ cwd, program, args });
}

test.concurrent(
  "a token that cannot be printed is not created, and the exit code says so",
  async () => {
    using here = world();
    const created = await runOnFullDisk(here.cwd, "token", "create", "greenhouse");
    const says = `Initialized empty database "${here.cwd}/plants.db".\nCannot write the output: no space left on device\n`;
    expect(created).toMatchObject({ exitCode: 1, stderr: says });
    expect(await here.list()).toEqual([]);
  },
);

test.concurrent.each(["export --format csv", "token list", "--help"])(
  "%s into a full disk exits 1 with one line",
  async (command) => {
    const run = await runOnFullDisk(home.cwd, ...command.split(" "));
    expect(run).toMatchObject({
      exitCode: 1,
      stderr: "Cannot write the output: no space left on device\n",
    });
  },
);

test.concurrent(
  "a deleted token's name can be used again, and prune deletes what is revoked or expired",
  async () => {
    using here = world();
    await here.create("greenhouse");
    expect(await here.token("delete", "greenhouse", "--yes")).toEqual({
      exitCode: 0,
      stdout: "",
      stderr: 'Deleted token "greenhouse" from "plants.db".\n',
    });

    const howTo = (command: string) =>
      `run as ${USER}: plant-store token ${command} --database ${here.at("plants.db")}`;
    const cannot = (action: string) => `Cannot ${action} token "greenhouse" in "plants.db": `;
    expect(await here.token("delete", "greenhouse", "--yes")).toMatchObject({
      exitCode: 1,
      stderr: `${cannot("delete")}no token has this name; to see all, ${howTo("list")}\n`,
    });

    for (const name of ["greenhouse", "garden"]) await here.create(name);
    await here.token("revoke", "greenhouse");
    expect(await here.token("create", "greenhouse")).toMatchObject({
      exitCode: 1,
      stderr: `${cannot("create")}a revoked token has this name; to free it, ${howTo("delete greenhouse")}\n`,
    });
    expect((await here.token("prune")).stderr).toBe(
      'Deleted 1 revoked or expired token from "plants.db".\n',
    );
    expect(await here.list()).toMatchObject([{ name: "garden" }]);
  },
);

test.concurrent(
  "what token list prints of a database without tokens creates one there, from another directory",
  async () => {
    using here = world();
    using elsewhere = emptyDirectory();
    await runToEnd({ cwd: here.cwd, args: ["migrate", "--database", "a garden.db"] });
    const { stderr } = await here.token("list", "--database", "a garden.db");
    expect(stderr).toStartWith('No tokens in "a garden.db"; to create one, run as ');

    const [, hint = ""] = /: plant-store (.+)\n$/.exec(stderr) ?? [];
    const program = shell(`exec "$@" ${hint}`);
    expect((await runToEnd({ cwd: elsewhere.path, program })).exitCode).toBe(0);
    const after = await here.token("list", "--database", "a garden.db");
    expect(after).toMatchObject({ stdout: expect.stringMatching(/^NAME  +active/m), stderr: "" });
  },
);

test.concurrent("token delete needs --yes, and deletes nothing without it", async () => {
  using here = world();
  await here.create("greenhouse");
  expect(await here.token("delete", "greenhouse")).toEqual({
    exitCode: 2,
    stdout: "",
    stderr:
      'Cannot delete token "greenhouse" from "plants.db" without --yes: clients that use it are refused\n',
  });
  expect(await here.list()).toMatchObject([{ name: "greenhouse" }]);
});
