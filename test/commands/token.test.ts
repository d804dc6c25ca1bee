import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { post, untilTokenIs } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.concurrent(
  "a token that is created, revoked and listed beside a running server counts there, or no more, within seconds",
  async () => {
    using directory = emptyDirectory();
    const cwd = directory.path;
    await using server = await startServer({ cwd, env: { NODE_ENV: "production" } });
    const created = await runToEnd({ cwd, args: ["token", "create", "greenhouse", "--expires", "90d"] });
    expect(created.exitCode).toBe(0);
    expect(created.stdout).toMatch(/^plant_\w{38}\n$/);
    const token = created.stdout.trim();
    await untilTokenIs(200, server.url, token);
    expect((await runToEnd({ cwd, args: ["token", "revoke", "greenhouse"] })).exitCode).toBe(0);
    await untilTokenIs(401, server.url, token);
    const { stdout } = await runToEnd({ cwd, args: ["token", "list", "--json"] });
    expect(JSON.parse(stdout)).toEqual([
      {
        name: "greenhouse",
        status: "revoked",
        scopes: ["write", "metrics"],
        created: expect.stringMatching(/Z$/),
        expires: expect.stringMatching(/Z$/),
        lastUsed: expect.stringMatching(/:00\.000Z$/),
        revoked: expect.stringMatching(/Z$/),
      },
    ]);
  },
);

test.concurrent("a revoked token ends on a running server, also while no use of a token can be written", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  const { stdout } = await runToEnd({ cwd, args: ["token", "create", "greenhouse"] });
  const token = stdout.trim();
  refuseUses(join(cwd, "plants.db"));
  await using server = await startServer({ cwd });
  expect((await post(server.url, undefined, { token })).status).toBe(200);
  await server.stderr.until(/Uses of tokens not written/);
  expect((await runToEnd({ cwd, args: ["token", "revoke", "greenhouse"] })).exitCode).toBe(0);
  await untilTokenIs(401, server.url, token);
  await server.stderr.until(/"greenhouse\\?" is revoked/);
});

test.concurrent("the last use of a token is not lost when the server stops right behind it", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  const { stdout } = await runToEnd({ cwd, args: ["token", "create", "greenhouse"] });
  await using server = await startServer({ cwd });
  expect((await post(server.url, undefined, { token: stdout.trim() })).status).toBe(200);
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
  const list = await runToEnd({ cwd, args: ["token", "list", "--json"] });
  expect(JSON.parse(list.stdout)).toMatchObject([
    { name: "greenhouse", lastUsed: expect.stringMatching(/:00\.000Z$/) },
  ]);
});

/** From now on every write of a use fails, and everything else goes on. */
function refuseUses(path: string): void {
  using database = new Database(path);
  database.run(
    "CREATE TRIGGER refuse_uses BEFORE UPDATE OF last_used_at ON tokens BEGIN SELECT RAISE(ABORT, 'no uses'); END",
  );
}

test.concurrent("the database holds no token, whoever copies it", async () => {
  using directory = emptyDirectory();
  const { stdout } = await runToEnd({ cwd: directory.path, args: ["token", "create", "greenhouse"] });
  const file = readFileSync(join(directory.path, "plants.db"));
  expect(file.includes("greenhouse")).toBe(true);
  expect(file.includes(stdout.trim())).toBe(false);
  expect(file.includes(stdout.trim().slice("plant_".length, -6))).toBe(false);
});

test.concurrent("token list is a table with a header, and says nothing of the tokens themselves", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  const { stdout: token } = await runToEnd({ cwd, args: ["token", "create", "greenhouse"] });
  const { stdout } = await runToEnd({ cwd, args: ["token", "list"] });
  const [header, row, ...rest] = stdout.trimEnd().split("\n");
  expect(header).toMatch(/^NAME +STATUS +SCOPES +CREATED \(UTC\) +EXPIRES \(UTC\) +LAST USED \(UTC\)$/);
  expect(row).toMatch(/^greenhouse +active +write metrics +\d{4}-\d\d-\d\d \d\d:\d\d +- +-$/);
  expect(rest).toEqual([]);
  expect(stdout).not.toContain(token.trim());
});

/** Where there is one token, named "taken", for the tests that change nothing. */
const home = emptyDirectory();
beforeAll(async () => {
  expect((await runToEnd({ cwd: home.path, args: ["token", "create", "taken"] })).exitCode).toBe(0);
});
afterAll(() => home[Symbol.dispose]());

const refused: [string[], number, string][] = [
  [["create", "a b"], 2, 'Cannot use token name "a b"'],
  [["create", "x".repeat(65)], 2, "Cannot use token name"],
  [["create", "greenhouse", "--expires", "5y"], 2, "Cannot use --expires 5y: expected a number and its unit"],
  [["create", "greenhouse", "--expires", "0d"], 2, "Cannot use --expires 0d: expected a number and its unit"],
  [["create", "taken"], 1, 'Cannot create token "taken" in "plants.db": the name is taken'],
  [["revoke", "nobody"], 1, 'Cannot revoke token "nobody" in "plants.db": no token has this name'],
  [
    ["list", "--database", "file:missing.db"],
    1,
    'Cannot open database "missing.db": there is no such file; choose another with --database',
  ],
];

test.concurrent.each(refused)("token %p exits with %d", async (args, exitCode, says) => {
  const run = await runToEnd({ cwd: home.path, args: ["token", ...args] });
  expect({ exitCode: run.exitCode, stdout: run.stdout }).toEqual({ exitCode, stdout: "" });
  expect(run.stderr).toContain(says);
});

test.concurrent("a database that cannot be created is not called created", async () => {
  const run = await runToEnd({ cwd: home.path, args: ["token", "create", "x", "--database", "missing/plants.db"] });
  const stderr = 'Cannot open database "missing/plants.db": there is no such directory\n';
  expect(run).toMatchObject({ exitCode: 1, stdout: "", stderr });
});

/** Runs the program with its standard output on a full disk. */
function runOnFullDisk(cwd: string, ...args: string[]) {
  const program = ["sh", "-c", '"$@" > /dev/full', "sh", ...executable()];
  return runToEnd({ cwd, program, args });
}

test.concurrent("a token that cannot be printed is not there, and the exit code says so", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  const created = await runOnFullDisk(cwd, "token", "create", "greenhouse");
  const says = 'Created database "plants.db".\nCannot write the output: no space left on device\n';
  expect(created).toMatchObject({ exitCode: 1, stderr: says });
  expect((await runToEnd({ cwd, args: ["token", "list", "--json"] })).stdout).toBe("[]\n");
});

test.concurrent.each(["export --format csv", "token list", "token list --json", "openapi", "--help", "--version"])(
  "%s into a full disk exits 1 with one line",
  async (command) => {
    const run = await runOnFullDisk(home.path, ...command.split(" "));
    expect(run).toMatchObject({ exitCode: 1, stderr: "Cannot write the output: no space left on device\n" });
  },
);

test.concurrent("a deleted token's name can be used again, and prune deletes what is revoked or expired", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  const token = (...args: string[]) => runToEnd({ cwd, args: ["token", ...args] });
  const names = async () =>
    (JSON.parse((await token("list", "--json")).stdout) as { name: string }[]).map(({ name }) => name);
  await token("create", "greenhouse");
  expect(await token("delete", "greenhouse")).toEqual({
    exitCode: 0,
    stdout: "",
    stderr: 'Deleted token "greenhouse" from "plants.db".\n',
  });
  expect(await token("delete", "greenhouse")).toMatchObject({
    exitCode: 1,
    stderr:
      'Cannot delete token "greenhouse" in "plants.db": no token has this name; plant-store token list shows all\n',
  });
  expect((await token("create", "greenhouse")).exitCode).toBe(0);
  await token("create", "garden");
  await token("revoke", "greenhouse");
  expect(await token("create", "greenhouse")).toMatchObject({
    exitCode: 1,
    stderr:
      'Cannot create token "greenhouse" in "plants.db": a revoked token has this name; free it with plant-store token delete greenhouse\n',
  });
  expect((await token("prune")).stderr).toBe('Deleted 1 revoked or expired token from "plants.db".\n');
  expect(await names()).toEqual(["garden"]);
});
