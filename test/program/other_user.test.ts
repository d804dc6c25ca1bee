import { describe, expect, setDefaultTimeout, test } from "bun:test";
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
  return { ...directory, database: directory.at("plants.db") };
}

/** A command that ends with one line. */
function refusal(line: string) {
  return { exitCode: 1, stdout: "", stderr: expect.stringMatching(new RegExp(`^Cannot ${line}\n$`)) };
}

const NOT_THE_OWNER = String.raw`open database "\w+\.db": [^\n]* as the user who runs the server`;

const COMMANDS = ["token create garden", "token revoke garden", "token list", "import plants.ndjson", "serve --port 0"];
const ALL_COMMANDS = [...COMMANDS, "token delete garden", "token prune", "check", "export", "backup copy.db"];

describe.skipIf(skipsOtherUser())("another user", () => {
  test("who may only read a served database gets one line with the cure", async () => {
    await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
    const { cwd } = server;
    expect((await post(server.url)).status).toBe(200);
    chmodSync(cwd, 0o755);
    for (const name of readdirSync(cwd)) chmodSync(join(cwd, name), 0o644);
    writeFileSync(join(cwd, "plants.ndjson"), '{"id":2,"name":"Moss"}\n');
    for (const command of COMMANDS) {
      expect(runAsOther(cwd, ...command.split(" ")), command).toEqual(refusal(NOT_THE_OWNER));
    }
  });

  test("who may not write to the WAL is refused, also by a symbolic link to the file", () => {
    using other = otherDirectory();
    const { path: cwd } = other;
    symlinkSync("plants.db", join(cwd, "link.db"));
    writeFileSync(`${other.database}-wal`, "", { mode: 0o644 });
    for (const name of ["plants.db", "link.db"]) {
      const ended = runAsOther(cwd, "token", "create", "gate", "--database", `file:${name}`);
      expect(ended).toEqual(refusal(NOT_THE_OWNER));
    }
  });

  test("who has put a journal beside the database makes every command refuse it", async () => {
    using directory = emptyDirectory();
    const { path: cwd } = directory;
    expect((await runToEnd({ cwd, args: ["token", "create", "gate"] })).exitCode).toBe(0);
    writeFileSync(join(cwd, "plants.ndjson"), '{"id":2,"name":"Moss"}\n');
    writeFileSync(join(cwd, "plants.db-journal"), "");
    chownSync(join(cwd, "plants.db-journal"), OTHER_USER, OTHER_USER);
    const says = `"plants.db-journal" beside it belongs to another user (uid ${OTHER_USER}): find out who put it there, and move it away`;
    for (const command of ALL_COMMANDS) {
      const ended = await runToEnd({ cwd, args: command.split(" ") });
      expect(ended, command).toEqual(refusal(`(?:open|read) database "plants.db": ${RegExp.escape(says)}`));
    }
  });

  test("who owns the database knows of the corruption that root has found", () => {
    using other = otherDirectory();
    corruptionMarker(other.database).write("page 7 is gone");
    expect(runAsOther(other.path, "token", "list").stderr).toContain("it is corrupt (page 7 is gone);");
  });

  test("who has put a link in the place of a marker leads root nowhere", () => {
    using other = otherDirectory();
    using elsewhere = emptyDirectory();
    const { database } = other;
    const victim = elsewhere.at("victim");
    writeFileSync(victim, "root's own", { mode: 0o600 });
    for (const mark of [`${database}-corrupt`, `${database}-unsynced`]) symlinkSync(victim, mark);
    corruptionMarker(database).write("page 7 is gone");
    markUnsynced(database);
    expect([readFileSync(victim, "utf8"), statSync(victim).uid]).toEqual(["root's own", 0]);
    expect(corruptionMarker(database).finding()).toBe("page 7 is gone");
  });

  test("who may not enter the directory of a database gets one line", () => {
    using directory = emptyDirectory();
    const database = directory.at("plants.db");
    writeFileSync(database, "");
    for (const command of ["export", "backup copy.db", "token list"]) {
      const ended = runAsOther("/", ...command.split(" "), "--database", `file:${database}`);
      expect(ended, command).toEqual(refusal('(?:read|open) database "[^"]+": [^\\n]+'));
    }
  });
});
