import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { corruptionMarker, markUnsynced } from "../../src/database/sqlite/markers.ts";
import { post, TOKEN } from "../support/client.ts";
import { CERTIFICATE } from "../support/dashboard.ts";
import { filesIn } from "../support/database_fixture.ts";
import { executable } from "../support/executable.ts";
import { skipped } from "../support/missing.ts";
import { jsonOf, moss } from "../support/plants.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Who owns no file here. */
const OTHER_USER = 65_534;
const OTHER_NAME = "nobody";

/** Ports below it need CAP_NET_BIND_SERVICE. */
const FIRST_FREE_PORT = Number(
  readFileSync("/proc/sys/net/ipv4/ip_unprivileged_port_start", "utf8"),
);

/** Runs the program to its end as another user. */
function runAsOther(cwd: string, ...args: string[]) {
  const [program = "", ...rest] = [...executable(), ...args];
  const { status, stdout, stderr } = spawnSync(program, rest, {
    cwd,
    uid: OTHER_USER,
    gid: OTHER_USER,
    env: {},
  });

  return { exitCode: status, stdout: String(stdout), stderr: String(stderr) };
}

function skipsOtherUser(): boolean {
  const canRun = process.getuid?.() === 0 && runAsOther("/", "--version").exitCode === 0;
  return (
    !canRun &&
    skipped("what another user gets to see: it needs root, and a checkout that all may read")
  );
}

/** A directory of another user, with the database that this user has made. */
function otherDirectory() {
  const directory = emptyDirectory();
  chownSync(directory.path, OTHER_USER, OTHER_USER);
  expect(runAsOther(directory.path, "token", "create", "garden").exitCode).toBe(0);
  return { ...directory, database: directory.at("plants.db") };
}

/** A directory that others may write to, with a database of root's. */
function sharedDirectory() {
  const directory = emptyDirectory();
  chmodSync(directory.path, 0o1777);
  const database = directory.at("plants.db");
  connect(database).close(true);
  return { ...directory, database };
}

/** A command that ends with one line. */
function refusal(line: string) {
  return {
    exitCode: 1,
    stdout: "",
    stderr: expect.stringMatching(new RegExp(`^Cannot ${line}\n$`)),
  };
}

const CURES = `choose another database with --database, run this as its owner, or give it to uid ${OTHER_USER}`;
const NOT_THE_OWNER = String.raw`open database "\w+\.db": it belongs to uid 0; ${CURES}`;

/** One for each way to open a database for writing. */
const COMMANDS = ["token create garden", "token list", "serve --port 0"];
const ALL_COMMANDS = [...COMMANDS, "check", "export", "backup copy.db"];

describe.skipIf(skipsOtherUser())("another user", () => {
  test("who may only read a served database gets one line with the cure", async () => {
    await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
    const { cwd } = server;
    expect((await post(server.url)).status).toBe(200);

    chmodSync(cwd, 0o755);
    for (const name of readdirSync(cwd)) chmodSync(join(cwd, name), 0o644);
    for (const command of COMMANDS) {
      expect(runAsOther(cwd, ...command.split(" ")), command).toEqual(refusal(NOT_THE_OWNER));
    }
  });

  test.skipIf(FIRST_FREE_PORT <= 443 && skipped("a port that needs a privilege: here none does"))(
    "who may not use the port is refused by a start, and warned by serve --check",
    () => {
      using other = otherDirectory();
      const refused =
        "Cannot listen on 127.0.0.1:443: this port needs root or CAP_NET_BIND_SERVICE; choose another with --port";
      const check = runAsOther(other.path, "serve", "--check", "--port", "443");
      const stderr = `${refused}, unless the running server has this port\n`;
      expect(check).toMatchObject({ exitCode: 0, stderr });
      expect(runAsOther(other.path, "serve", "--port", "443").stderr).toEndWith(`${refused}\n`);
    },
  );

  test("who has put a journal beside the database makes every command refuse it", async () => {
    using directory = emptyDirectory();
    const { path: cwd } = directory;
    expect((await runToEnd({ cwd, args: ["token", "create", "gate"] })).exitCode).toBe(0);

    writeFileSync(join(cwd, "plants.db-journal"), "");
    chownSync(join(cwd, "plants.db-journal"), OTHER_USER, OTHER_USER);
    const says = `"plants.db-journal" beside it belongs to uid ${OTHER_USER}, and the database to uid 0; it may hold the newest plants: never move or delete it; if it is yours, give it to the owner of the database: chown -h 0 ${directory.at("plants.db")}-*`;

    for (const command of ALL_COMMANDS) {
      const ended = await runToEnd({ cwd, args: command.split(" ") });
      expect(ended, command).toEqual(
        refusal(`(?:open|read) database "plants.db": ${RegExp.escape(says)}`),
      );
    }
  });

  test("who has put a link in the place of a marker leads nobody anywhere", () => {
    using shared = sharedDirectory();
    using elsewhere = emptyDirectory();
    const { database } = shared;
    const victim = elsewhere.at("victim");

    writeFileSync(victim, "root's own", { mode: 0o600 });
    for (const mark of [`${database}-corrupt`, `${database}-unsynced`]) symlinkSync(victim, mark);
    corruptionMarker(database).write("page 7 is gone");
    markUnsynced(database);

    expect(readFileSync(victim, "utf8")).toBe("root's own");
    expect(corruptionMarker(database).finding()).toBe("page 7 is gone");
  });

  test("who has put a link or a directory where a restore moves old files stops it before it moves any", async () => {
    using shared = sharedDirectory();
    using elsewhere = emptyDirectory();
    const { database } = shared;
    expect((await runToEnd({ cwd: shared.path, args: ["backup", "saved.db"] })).exitCode).toBe(0);

    const aside = `${database}-replacing`;
    const plants: [says: string, plant: () => void][] = [
      [
        "is not a directory: find out who put it there, and move it away",
        () => symlinkSync(elsewhere.path, aside),
      ],
      ["belongs to uid 65534, and the database to uid 0; ", () => mkdirSync(aside)],
    ];

    for (const [says, plant] of plants) {
      plant();
      if (lstatSync(aside).isDirectory()) chownSync(aside, OTHER_USER, OTHER_USER);
      expect(await runToEnd({ cwd: shared.path, args: ["restore", "saved.db"] })).toEqual(
        refusal(
          `replace database "plants.db": "plants.db-replacing" beside it ${RegExp.escape(says)}.*`,
        ),
      );
      expect(readdirSync(elsewhere.path)).toEqual([]);
      expect(filesIn(shared.path)).toEqual(
        ["plants.db", "plants.db-replacing", "saved.db"].toSorted(),
      );

      rmSync(aside, { recursive: true });
    }
  });

  test("who owns the database may have root's files beside it", () => {
    using other = otherDirectory();
    writeFileSync(`${other.database}-wal`, "");
    chmodSync(`${other.database}-wal`, 0o666);
    expect(runAsOther(other.path, "token", "list").exitCode).toBe(0);
  });

  test("who makes a database in root's directory is told whose it is", () => {
    using directory = emptyDirectory();
    chmodSync(directory.path, 0o755);
    expect(runAsOther(directory.path, "migrate")).toEqual(
      refusal(
        `open database "plants.db": its directory belongs to uid 0; choose another database with --database, or give that directory to uid ${OTHER_USER}`,
      ),
    );
  });

  test("who serves in the directory of yet another user is refused", () => {
    using directory = emptyDirectory();
    chownSync(directory.path, 1234, OTHER_USER);
    chmodSync(directory.path, 0o770);

    expect(runAsOther(directory.path, "--port", "0")).toEqual(
      refusal(
        `open database "plants.db": its directory belongs to uid 1234, who can replace it: use another directory, or give that one to uid ${OTHER_USER}`,
      ),
    );
    expect(readdirSync(directory.path)).toEqual([]);
  });

  test.each([
    // As a new image with another user does it.
    ["another user's", 1234],
    ["root's", 0],
  ])(
    "who has a killed server's database, whose WAL is %s, is told to take over the WAL, and loses nothing",
    async (_whose, uid) => {
      using directory = emptyDirectory();
      const { path: cwd, at } = directory;
      {
        await using server = await startServer({ cwd, env: { AUTH_TOKENS: TOKEN } });
        expect((await post(server.url)).status).toBe(200);
      }

      for (const name of ["plants.db-wal", "plants.db-shm"]) chownSync(at(name), uid, uid);
      for (const name of ["", "plants.db"]) chownSync(at(name), OTHER_USER, OTHER_USER);
      const cure = `chown -h ${OTHER_USER} ${at("plants.db")}-*`;
      for (const command of ["token create garden", "export", "check", "serve --port 0"])
        expect(runAsOther(cwd, ...command.split(" ")), command).toEqual({
          exitCode: 1,
          stdout: "",
          stderr: `Cannot open database "plants.db": "plants.db-wal" beside it belongs to uid ${uid}, and the database to uid ${OTHER_USER}; it may hold the newest plants: never move or delete it; if it is yours, give it to the owner of the database: ${cure}\n`,
        });

      expect(spawnSync("sh", ["-c", cure]).status).toBe(0);
      expect(runAsOther(cwd, "export").stdout).toContain('"id":1');
    },
  );

  test.each([
    [0o600, ["export", "check", "token list", "serve --port 0"]],
    [0o644, ["token list", "serve --port 0"]],
  ])(
    "who has a directory with files that root has copied, with mode %o, is told to take them over",
    (mode, commands) => {
      using directory = emptyDirectory();
      const { path: cwd, at } = directory;
      connect(at("plants.db")).close(true);
      chmodSync(at("plants.db"), mode);
      chownSync(cwd, OTHER_USER, OTHER_USER);

      for (const command of commands)
        expect(runAsOther(cwd, ...command.split(" ")), command).toEqual(refusal(NOT_THE_OWNER));

      chownSync(at("plants.db"), OTHER_USER, OTHER_USER);
      expect(runAsOther(cwd, "check").exitCode).toBe(0);
    },
  );

  test("who may not read the marker that root has copied beside a database obeys it", () => {
    using other = otherDirectory();
    corruptionMarker(other.database).write("page 7 is gone");
    for (const command of ["token list", "serve --port 0"])
      expect(runAsOther(other.path, ...command.split(" ")), command).toEqual(
        refusal(
          'open database "plants.db": it is corrupt \\(an earlier check or request found that\\); restore [^\\n]*',
        ),
      );

    expect(runAsOther(other.path, "check").exitCode).toBe(0);
    expect(runAsOther(other.path, "token", "list").exitCode).toBe(0);
  });

  test("who may only read the files of a server's user is told to be that user", () => {
    using directory = emptyDirectory();
    const { path: cwd, at } = directory;
    connect(at("plants.db")).close(true);
    for (const name of ["", "plants.db"]) {
      chmodSync(at(name), 0o755);
      chownSync(at(name), 1234, 1234);
    }

    for (const command of ["export", "check"])
      expect(runAsOther(cwd, command), command).toEqual(
        refusal(`open database "plants.db": it belongs to uid 1234; ${CURES}`),
      );
  });

  test("who restores a database still owns it, with its mode", () => {
    using other = otherDirectory();
    expect(runAsOther(other.path, "backup", "saved.db").exitCode).toBe(0);
    chmodSync(other.database, 0o640);
    expect(runAsOther(other.path, "restore", "saved.db").exitCode).toBe(0);
    const { uid, mode } = statSync(other.database);
    expect([uid, mode & 0o777]).toEqual([OTHER_USER, 0o640]);
    expect(runAsOther(other.path, "token", "list").stdout).toContain("garden");
  });

  test("who restores to a new disk, which is root's, is told its directory", () => {
    using other = otherDirectory();
    expect(runAsOther(other.path, "backup", "saved.db").exitCode).toBe(0);
    mkdirSync(other.at("disk"), { mode: 0o755 });

    const args = ["restore", "saved.db", "--database", "disk/plants.db"];
    expect(runAsOther(other.path, ...args)).toEqual(
      refusal(`write to "${other.at("disk")}": permission denied; nothing was changed`),
    );
  });

  test("who may not read a backup, such as one of root's, is told what to do", () => {
    using other = otherDirectory();
    copyFileSync(other.database, other.at("saved.db"));
    chmodSync(other.at("saved.db"), 0o600);
    expect(runAsOther(other.path, "restore", "saved.db")).toEqual(
      refusal(
        'restore "saved.db": the user who runs this may not read it; run chown, or make backups as this user',
      ),
    );

    chownSync(other.at("saved.db"), OTHER_USER, OTHER_USER);
    expect(runAsOther(other.path, "restore", "saved.db").exitCode).toBe(0);
  });

  test("who may not enter a directory above a database is told so", () => {
    using directory = emptyDirectory();
    const closed = directory.at("closed");
    mkdirSync(join(closed, "data"), { recursive: true, mode: 0o700 });
    chownSync(closed, 1234, 1234);
    chmodSync(directory.path, 0o755);

    const database = join(closed, "data/plants.db");
    for (const [command, exitCode] of [
      ["export", 1],
      ["check", 1],
      ["backup copy.db", 1],
      ["token list", 1],
      ["migrate --dry-run", 1],
      ["serve --port 0", 1],
      ["serve --check", 2],
    ] as const)
      expect(
        runAsOther("/", ...command.split(" "), "--database", `file:${database}`),
        command,
      ).toEqual({
        exitCode,
        stdout: "",
        stderr: `Cannot open database "${database}": this user may not enter its directory, or one above it; choose another database with --database\n`,
      });
  });
});

const RUN_AS_OTHER = `uid ${OTHER_USER}; run this as that user`;

/** A directory with a file that only root may read. */
function rootsFile(name: string, text: string | Uint8Array<ArrayBuffer>) {
  const directory = emptyDirectory();
  chmodSync(directory.path, 0o700);
  writeFileSync(directory.at(name), text, { mode: 0o600 });
  return directory;
}

const ownersIn = (directory: string) =>
  [...new Set(readdirSync(directory).map((name) => lstatSync(join(directory, name)).uid))].join();

describe.skipIf(skipsOtherUser())("root", () => {
  test.each([
    "token create gate",
    "export",
    "check",
    "backup copy.db",
    "restore saved.db",
    "migrate",
  ])("acts as the owner of the database: %s", async (command) => {
    using other = otherDirectory();
    expect(runAsOther(other.path, "backup", "saved.db").exitCode).toBe(0);

    const { exitCode, stderr } = await runToEnd({ cwd: other.path, args: command.split(" ") });
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: expect.any(String) });
    expect(ownersIn(other.path)).toBe(String(OTHER_USER));
    expect(runAsOther(other.path, "check").exitCode).toBe(0);
  });

  test("creates a database for the owner of its directory", async () => {
    using directory = emptyDirectory();
    const { path: cwd, at } = directory;
    chownSync(cwd, OTHER_USER, OTHER_USER);

    for (const path of [at("plants.db"), at("new/plants.db")]) {
      const args = ["migrate", "--database", path];
      expect((await runToEnd({ cwd, args })).exitCode).toBe(0);
    }
    expect(ownersIn(cwd)).toBe(String(OTHER_USER));
    expect(ownersIn(at("new"))).toBe(String(OTHER_USER));
    expect(runAsOther(cwd, "token", "list").exitCode).toBe(0);
  });

  test("serves as the owner, with the secrets that only root may read, and says so", async () => {
    using other = otherDirectory();
    using secrets = rootsFile("tokens", TOKEN);
    const key = readFileSync(`${CERTIFICATE}.key`);
    writeFileSync(secrets.at("key.pem"), key, { mode: 0o600 });
    const tls = { TLS_CERT_FILE: `${CERTIFICATE}.crt`, TLS_KEY_FILE: secrets.at("key.pem") };
    const env = { AUTH_TOKENS_FILE: secrets.at("tokens"), ...tls };

    await using server = await startServer({ cwd: other.path, env });
    const { pid } = server.child;
    expect(readFileSync(`/proc/${pid}/status`, "utf8")).toMatch(
      new RegExp(`^Uid:(?:\\s+${OTHER_USER}){4}$`, "m"),
    );
    const log = await server.stderr.until(/The certificate cannot be reloaded later.*/);
    expect(log[0]).toContain("permission denied");
    await server.stderr.until(new RegExp(`Runs as ${OTHER_NAME}, who owns the database`));

    const ca = Bun.file(`${CERTIFICATE}.crt`);
    expect((await post(server.url, undefined, { token: TOKEN, tls: { ca } })).status).toBe(200);
    expect(ownersIn(other.path)).toBe(String(OTHER_USER));
  });

  test("imports lines and restores a backup that only root may read", async () => {
    using other = otherDirectory();
    expect(runAsOther(other.path, "backup", "saved.db").exitCode).toBe(0);
    using lines = rootsFile("plants.ndjson", `${jsonOf(moss({ id: 2n }))}\n`);
    using saved = rootsFile("saved.db", new Uint8Array(readFileSync(other.at("saved.db"))));
    const run = (...args: string[]) => runToEnd({ cwd: other.path, args });

    expect(await run("import", lines.at("plants.ndjson"))).toMatchObject({ exitCode: 0 });
    expect(runAsOther(other.path, "export").stdout).toContain('"id":2');
    expect(await run("restore", saved.at("saved.db"))).toMatchObject({ exitCode: 0 });
    // As `scp` leaves it beside the database.
    writeFileSync(other.at("copied.db"), readFileSync(saved.at("saved.db")));
    expect(await run("restore", "copied.db")).toMatchObject({ exitCode: 0 });
    expect(runAsOther(other.path, "export").stdout).toBe("");
    expect(statSync(other.database).uid).toBe(OTHER_USER);

    // The newest plants are beside a file in use, where the owner of the database cannot look.
    writeFileSync(saved.at("saved.db-wal"), "x");
    expect(await run("restore", saved.at("saved.db"))).toEqual(
      refusal(`restore database "${saved.at("saved.db")}": it has a WAL beside it .*`),
    );
  });

  test("is told where the owner of the database may not write", async () => {
    using other = otherDirectory();
    using own = rootsFile("file", "");
    const target = own.at("copy.db");
    const backup = await runToEnd({ cwd: other.path, args: ["backup", target] });
    expect(backup).toEqual(
      refusal(`back up to "${target}": ${OTHER_NAME}, who owns the database, may not write there`),
    );
    expect(readdirSync(own.path)).toEqual(["file"]);
  });

  test("is told neither to take somebody's home nor to close /tmp for a backup that is there", async () => {
    using other = otherDirectory();
    using home = emptyDirectory();
    using open = emptyDirectory();
    const run = (...args: string[]) => runToEnd({ cwd: other.path, args });
    for (const { path, at } of [home, open]) {
      expect(await run("backup", "saved.db")).toMatchObject({ exitCode: 0 });
      renameSync(other.at("saved.db"), at("saved.db"));
      chownSync(at("saved.db"), path === home.path ? 0 : 1234, 0);
    }
    chownSync(home.path, 1234, 1234);
    chmodSync(home.path, 0o755);
    chmodSync(open.path, 0o1777);

    const itsHome = "its directory belongs to uid 1234, who can replace it: use another directory";
    expect(await run("backup", home.at("copy.db"))).toEqual(
      refusal(
        `back up to "${home.at("copy.db")}": ${itsHome}, or give that one to uid ${OTHER_USER}`,
      ),
    );
    expect(await run("restore", home.at("saved.db"))).toEqual(
      refusal(`restore database "${home.at("saved.db")}": ${itsHome}, or give that one to uid 0`),
    );
    expect(await run("restore", open.at("saved.db"))).toEqual(
      refusal(
        `restore database "${open.at("saved.db")}": other users can write to its directory, and so replace it: use another directory`,
      ),
    );
  });

  test("is refused on the database of a user without a name, and changes nothing", async () => {
    using directory = emptyDirectory();
    const { path: cwd, at } = directory;
    connect(at("plants.db")).close(true);
    for (const name of ["", "plants.db"]) chownSync(at(name), 1234, 1234);
    const before = lstatSync(at("plants.db"));

    for (const command of ["token create gate", "check", "serve --port 0"])
      expect(await runToEnd({ cwd, args: command.split(" ") }), command).toEqual(
        refusal('open database "plants.db": it belongs to uid 1234; run this as that user'),
      );
    expect(lstatSync(at("plants.db"))).toEqual(before);
  });

  test("is refused in another user's directory if the database there is root's", async () => {
    using directory = emptyDirectory();
    const { path: cwd } = directory;
    connect(directory.at("plants.db")).close(true);
    chownSync(cwd, OTHER_USER, OTHER_USER);

    const ended = await runToEnd({ cwd, args: ["token", "create", "gate"] });
    expect(ended).toEqual(
      refusal(`open database "plants.db": its directory belongs to ${RUN_AS_OTHER}`),
    );
    expect(readdirSync(cwd)).toEqual(["plants.db"]);
  });

  test("is refused to make a backup in another user's directory, even through a link to it", async () => {
    using own = emptyDirectory();
    using other = emptyDirectory();
    connect(own.at("plants.db")).close(true);
    chownSync(other.path, OTHER_USER, OTHER_USER);
    symlinkSync(other.path, own.at("backups"));

    for (const target of [other.at("copy.db"), own.at("backups/copy.db")]) {
      const ended = await runToEnd({ cwd: own.path, args: ["backup", target] });
      expect(ended).toEqual(
        refusal(`back up to "${target}": its directory belongs to ${RUN_AS_OTHER}`),
      );
    }

    expect(readdirSync(other.path)).toEqual([]);
  });
});
