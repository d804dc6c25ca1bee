import { expect, setDefaultTimeout, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { corruptionMarker, markUnsynced } from "../../src/database/sqlite/fail_stop.ts";
import { post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Who owns no file here ("nobody"). */
const OTHER_USER = 65_534;

/** Runs the program to its end as another user. */
function runAsOther(cwd: string, ...args: string[]) {
  const [program = "", ...rest] = [...executable(), ...args];
  const { status, stdout, stderr } = spawnSync(program, rest, { cwd, uid: OTHER_USER, gid: OTHER_USER, env: {} });
  return { exitCode: status, stdout: String(stdout), stderr: String(stderr) };
}

function skipsOtherUser(): boolean {
  const canRun = process.getuid?.() === 0 && runAsOther("/", "--version").exitCode === 0;
  if (!canRun) console.warn("Skipped, what another user gets to see: it needs root, and a checkout that all may read");
  return !canRun;
}

/** A directory of another user, with the database that this user has made. */
function otherDirectory() {
  const directory = emptyDirectory();
  chownSync(directory.path, OTHER_USER, OTHER_USER);
  expect(runAsOther(directory.path, "token", "create", "garden").exitCode).toBe(0);
  return { ...directory, database: join(directory.path, "plants.db") };
}

const COMMANDS = ["token create garden", "token revoke garden", "token list", "import plants.ndjson", "serve --port 0"];

test.skipIf(skipsOtherUser())("a user who may only read a served database gets one line with the cure", async () => {
  using directory = emptyDirectory();
  const { path: cwd } = directory;
  await using server = await startServer({ cwd, env: { AUTH_TOKENS: TOKEN } });
  expect((await post(server.url)).status).toBe(200);
  chmodSync(cwd, 0o755);
  for (const name of readdirSync(cwd)) chmodSync(join(cwd, name), 0o644);
  writeFileSync(join(cwd, "plants.ndjson"), '{"id":2,"name":"Moss"}\n');
  for (const command of COMMANDS) {
    expect({ command, ...runAsOther(cwd, ...command.split(" ")) }).toEqual({
      command,
      exitCode: 1,
      stdout: "",
      stderr: expect.stringMatching(/^Cannot open database "plants\.db": [^\n]* as the user who runs the server\n$/),
    });
  }
});

test.skipIf(skipsOtherUser())("who may not write to the WAL is refused, also by a symbolic link to the file", () => {
  using other = otherDirectory();
  const { path: cwd } = other;
  symlinkSync("plants.db", join(cwd, "link.db"));
  writeFileSync(`${other.database}-wal`, "", { mode: 0o644 });
  for (const name of ["plants.db", "link.db"]) {
    expect(runAsOther(cwd, "token", "create", "gate", "--database", `file:${name}`).stderr).toMatch(
      /^Cannot open database "\w+\.db": [^\n]* as the user who runs the server\n$/,
    );
  }
});

const ALL_COMMANDS = [...COMMANDS, "token delete garden", "token prune", "check", "export", "backup copy.db"];

test.skipIf(skipsOtherUser())(
  "every command refuses a journal that another user has put beside the database",
  async () => {
    using directory = emptyDirectory();
    const { path: cwd } = directory;
    expect((await runToEnd({ cwd, args: ["token", "create", "gate"] })).exitCode).toBe(0);
    writeFileSync(join(cwd, "plants.ndjson"), '{"id":2,"name":"Moss"}\n');
    writeFileSync(join(cwd, "plants.db-journal"), "");
    chownSync(join(cwd, "plants.db-journal"), OTHER_USER, OTHER_USER);
    for (const command of ALL_COMMANDS) {
      const says = `"plants.db-journal" beside it belongs to another user (uid ${OTHER_USER}): find out who put it there, and move it away`;
      expect({ command, ...(await runToEnd({ cwd, args: command.split(" ") })) }).toEqual({
        command,
        exitCode: 1,
        stdout: "",
        stderr: expect.stringMatching(
          new RegExp(`^Cannot (?:open|read) database "plants.db": ${RegExp.escape(says)}\n$`),
        ),
      });
    }
  },
);

test.skipIf(skipsOtherUser())("corruption that root has found is known to the owner of the database", async () => {
  using other = otherDirectory();
  corruptionMarker(other.database).write("page 7 is gone");
  expect(runAsOther(other.path, "token", "list").stderr).toContain("it is corrupt (page 7 is gone);");
});

test.skipIf(skipsOtherUser())("root follows no link that another user has put in the place of a marker", async () => {
  using other = otherDirectory();
  using elsewhere = emptyDirectory();
  const { database } = other;
  const victim = join(elsewhere.path, "victim");
  writeFileSync(victim, "root's own", { mode: 0o600 });
  for (const mark of [`${database}-corrupt`, `${database}-unsynced`]) symlinkSync(victim, mark);
  corruptionMarker(database).write("page 7 is gone");
  markUnsynced(database);
  expect([readFileSync(victim, "utf8"), statSync(victim).uid]).toEqual(["root's own", 0]);
  expect(corruptionMarker(database).finding()).toBe("page 7 is gone");
});

test.skipIf(skipsOtherUser())("who may not enter the directory of a database gets one line", () => {
  using directory = emptyDirectory();
  const database = join(directory.path, "plants.db");
  writeFileSync(database, "");
  for (const args of [["export"], ["backup", "copy.db"], ["token", "list"]]) {
    const ended = runAsOther("/", ...args, "--database", `file:${database}`);
    expect({ args, ...ended }).toEqual({
      args,
      exitCode: 1,
      stdout: "",
      stderr: expect.stringMatching(/^Cannot (?:read|open) database "[^"]+": [^\n]+\n$/),
    });
  }
});
