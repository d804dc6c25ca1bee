import { expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { corruptionMarker } from "../../src/database/sqlite/markers.ts";
import { addPlants } from "../support/add_plants.ts";
import { post, TOKEN } from "../support/client.ts";
import { damage, makeLargeDatabase } from "../support/damage.ts";
import { executable } from "../support/executable.ts";
import { skipsWithout } from "../support/missing.ts";
import { fern, ivy, jsonOf, TEXT } from "../support/plants.ts";
import {
  emptyDirectory,
  runToEnd,
  start,
  startServer,
  TEST_TIMEOUT_MS,
  USER,
} from "../support/program.ts";
import { shell } from "../support/shell.ts";
import { lateSyncs, TRACED } from "./late_syncs.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const RESTORED = `${jsonOf(fern())}\n`;
const OLD = `${jsonOf(ivy({ id: 2n }))}\n`;

/** A directory with a backup, and a database whose plant is in the WAL that a killed server left. */
async function world() {
  const directory = emptyDirectory();
  const options = { cwd: directory.path, env: { AUTH_TOKENS: TOKEN } };
  const { at } = directory;
  const call = (...args: string[]) => runToEnd({ ...options, args });

  {
    using client = connect(at("saved.db"));
    addPlants(client)([fern()]);
    client.run("PRAGMA wal_checkpoint(TRUNCATE)");
  }
  {
    await using server = await startServer(options);
    expect((await post(server.url, ivy({ id: 2n }))).status).toBe(200);
  }

  return {
    at,
    call,
    options,
    exported: async (path = "plants.db") =>
      (await call("export", "--database", `file:${path}`)).stdout,
    /** The directories of old files, by their names. */
    replaced: () =>
      readdirSync(directory.path).filter((name) => name.startsWith("plants.db-replaced-")),
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
}

const DONE =
  /^Restored "saved\.db" to "plants\.db": 1 plant, \d+ kB; old files in "[^"]+\/plants\.db-replaced-[-0-9TZ.]+"\nTo add plants and tokens that only the old files have, run as [^\n]+\n$/;

test("restore puts the backup in place, with the old file's mode, and moves all old files away", async () => {
  using here = await world();
  chmodSync(here.at("plants.db"), 0o640);
  writeFileSync(here.at("plants.db-unsynced"), "");
  corruptionMarker(here.at("plants.db")).write("found before");

  const before = statSync(here.at("plants.db"));
  expect(await here.call("restore", "saved.db")).toEqual({
    exitCode: 0,
    stdout: "",
    stderr: expect.stringMatching(DONE),
  });

  const after = statSync(here.at("plants.db"));
  expect(after.mode).toBe(before.mode);

  const [old = ""] = here.replaced();
  expect(readdirSync(here.at(old)).toSorted()).toEqual(
    ["", "-corrupt", "-shm", "-unsynced", "-wal"].map((suffix) => `plants.db${suffix}`),
  );
  expect(readdirSync(here.at("")).toSorted()).toEqual(["plants.db", old, "saved.db"].toSorted());
  expect(await here.exported()).toBe(RESTORED);
  expect(await here.exported(`${old}/plants.db`)).toBe(OLD);

  await using server = await startServer(here.options);
  expect((await post(server.url, fern({ id: 2n, [TEXT]: "Oak" }))).status).toBe(200);
});

test("restore prints the line that adds the plants and tokens of the old files", async () => {
  using here = await world();
  await here.call("token", "create", "later");
  mkdirSync(here.at("it's here"));
  for (const file of readdirSync(here.at("")).filter((name) => name.startsWith("plants.db")))
    renameSync(here.at(file), join(here.at("it's here"), file));

  const { stderr } = await here.call("restore", "saved.db", "--database", "it's here/plants.db");
  const [, line] = /^To add .*, run as \S+ plant-store (.*)$/m.exec(stderr) ?? [];
  const run = await runToEnd({ program: shell(`exec "$@" ${line}`), cwd: "/" });
  expect(run).toMatchObject({
    exitCode: 0,
    stderr:
      'Tokens: 1 ("later") made valid, 0 revoked, 0 refused\n1 added, 0 already there, 0 refused\n',
  });
  expect(await here.exported("it's here/plants.db")).toBe(RESTORED + OLD);
});

test("restore replaces a file that is not a database, and creates one that is missing", async () => {
  using here = await world();
  const garbage = "This is no database.".repeat(1000);
  writeFileSync(here.at("plants.db"), garbage);
  expect(await here.call("restore", "saved.db")).toMatchObject({ exitCode: 0 });
  expect(readFileSync(join(here.at(here.replaced()[0] ?? ""), "plants.db"), "utf8")).toBe(garbage);
  expect(await here.exported()).toBe(RESTORED);

  mkdirSync(here.at("new"));
  expect(await here.call("restore", "saved.db", "--database", "new/plants.db")).toMatchObject({
    exitCode: 0,
    stderr: expect.stringMatching(/^Restored "saved.db" to [^;]*\n$/),
  });
  expect([readdirSync(here.at("new")), statSync(here.at("new/plants.db")).mode & 0o777]).toEqual([
    ["plants.db"],
    0o600,
  ]);
});

test("a command that writes may be the first to open a restored backup", async () => {
  using here = await world();
  expect(await here.call("backup", "copy.db")).toMatchObject({ exitCode: 0 });
  expect(await here.call("restore", "copy.db")).toMatchObject({ exitCode: 0 });
  expect(await here.call("token", "create", "greenhouse")).toMatchObject({ exitCode: 0 });
});

type World = Awaited<ReturnType<typeof world>>;

const REFUSED: [string, (here: World) => void, string][] = [
  [
    "is not there",
    () => {},
    'Cannot restore "bad.db": no such file or directory; nothing was changed\n',
  ],
  [
    "is a pipe that nobody writes to",
    ({ at }) => void Bun.spawnSync(["mkfifo", at("bad.db")]),
    'Cannot restore database "HERE/bad.db": it is not a file\n',
  ],
  [
    "is text",
    ({ at }) => writeFileSync(at("bad.db"), "text".repeat(999)),
    "file is not a database\n",
  ],
  [
    "is empty",
    ({ at }) => writeFileSync(at("bad.db"), ""),
    "it is empty: no plant-store has created its tables yet\n",
  ],
  [
    "is another program's",
    ({ at }) => change(at, "PRAGMA application_id = 7"),
    'Cannot restore "bad.db": Cannot open database "HERE/bad.db": it belongs to another application\n',
  ],
  [
    "is of a newer version",
    ({ at }) => change(at, "UPDATE __drizzle_migrations SET created_at = 1e15"),
    "it was made by a newer plant-store\n",
  ],
  [
    "is corrupt in the middle",
    ({ at }) => ruin(at("bad.db")),
    'Cannot restore "bad.db": it is corrupt: ',
  ],
  [
    "has a WAL",
    ({ at }) =>
      ["", "-wal"].forEach((suffix) =>
        copyFileSync(at(`plants.db${suffix}`), at(`bad.db${suffix}`)),
      ),
    `it has a WAL beside it ("bad.db-wal"); to make a backup of it, run as ${USER}: plant-store backup FILE --database HERE/bad.db\n`,
  ],
  [
    "is marked as corrupt",
    ({ at }) => {
      copyFileSync(at("saved.db"), at("bad.db"));
      corruptionMarker(at("bad.db")).write("a page is gone");
    },
    `it is corrupt (a page is gone); use an older backup, or to check it, run as ${USER}: plant-store check --database HERE/bad.db\n`,
  ],
];

function change(at: World["at"], sql: string): void {
  copyFileSync(at("saved.db"), at("bad.db"));
  using client = connect(at("bad.db"));
  client.run(sql);
  client.run("PRAGMA wal_checkpoint(TRUNCATE)");
}

function ruin(path: string): void {
  makeLargeDatabase(path, 20_000);
  damage(path, "flipped bits in a page in the middle");
}

test.each(REFUSED)(
  "a backup that %s is refused before anything is touched",
  async (_what, make, says) => {
    using here = await world();
    make(here);
    const content = () =>
      readdirSync(here.at(""))
        .filter((name) => !name.startsWith("bad"))
        .toSorted();
    const before = content();
    const { exitCode, stderr } = await here.call("restore", "bad.db");

    expect({ exitCode, stderr: stderr.replaceAll(here.at("").replace(/\/$/, ""), "HERE") }).toEqual(
      {
        exitCode: 1,
        stderr: expect.stringContaining(says),
      },
    );
    expect(content()).toEqual(before);
    expect(await here.exported()).toBe(OLD);
  },
);

test("restore is refused while a server has the database open, even one whose file was corrupted meanwhile", async () => {
  using here = await world();
  await using server = await startServer(here.options);
  const refused = {
    exitCode: 1,
    stdout: "",
    stderr: `Cannot replace database "plants.db": a process has it open (lslocks names it): stop it, and try again\n`,
  };
  expect(await here.call("restore", "saved.db")).toEqual(refused);
  expect((await post(server.url, fern({ id: 3n, [TEXT]: "Elm" }))).status).toBe(200);

  writeFileSync(here.at("plants.db"), Buffer.alloc(4096), { flag: "r+" });
  expect(await here.call("restore", "saved.db")).toEqual(refused);
  expect(here.replaced()).toEqual([]);

  server.child.kill("SIGKILL");
  await server.child.exited;
  expect(await here.call("restore", "saved.db")).toMatchObject({ exitCode: 0 });
});

test("restore replaces no directory and no pipe", async () => {
  using here = await world();
  mkdirSync(here.at("directory"));
  Bun.spawnSync(["mkfifo", here.at("pipe")]);
  for (const name of ["directory", "pipe"])
    expect(await here.call("restore", "saved.db", "--database", name)).toMatchObject({
      exitCode: 1,
      stderr: `Cannot replace database "${name}": it is not a file\n`,
    });
  expect(statSync(here.at("pipe")).isFIFO()).toBe(true);
});

test("the database is not its own backup", async () => {
  using here = await world();
  expect(await here.call("restore", "saved.db", "--database", "saved.db")).toMatchObject({
    exitCode: 1,
    stderr: 'Cannot replace database "saved.db": the backup is the database itself\n',
  });
});

/**
 * Each step that changes a name: the system call, the name that it is killed at, and what a start
 * finds then.
 */
const STEPS = [
  { step: "mkdir", name: "plants.db-replacing", finds: OLD },
  { step: "rename", name: "plants.db", finds: OLD },
  { step: "rename", name: "plants.db-wal", finds: undefined },
  { step: "link", name: "plants.db", finds: undefined },
  { step: "rename", name: "plants.db-replacing", finds: RESTORED },
];

const skipsStrace = skipsWithout("strace", "strace");

/** The program, at whose system calls of this name on a path something happens. */
function injecting(calls: string, path: string | undefined, what: string): string[] {
  const follow = path === undefined ? [] : ["-P", path];
  return [
    "strace",
    "-f",
    "-o",
    "/dev/null",
    ...follow,
    "-e",
    `inject=/^${calls}$:${what}`,
    ...executable(),
  ];
}

test.skipIf(skipsStrace).each(STEPS)(
  "a kill at the $step of $name loses nothing",
  async ({ step, name, finds }) => {
    using here = await world();
    const program = injecting(`${step}(at2?)?`, here.at(name), "signal=KILL");
    const { exitCode } = await runToEnd({
      ...here.options,
      program,
      args: ["restore", "saved.db"],
    });
    expect(exitCode).not.toBe(0);

    if (finds === undefined) {
      const refused = {
        exitCode: 1,
        stderr: expect.stringMatching(
          /: wait for it, or run as \S+: plant-store restore BACKUP --database \S+plants\.db\n$/,
        ),
      };
      expect(await here.call("--port", "0")).toMatchObject(refused);
      expect(existsSync(here.at("plants.db"))).toBe(false);
    } else {
      expect(await here.exported()).toBe(finds);
    }

    expect(await here.call("restore", "saved.db")).toMatchObject({
      exitCode: 0,
      stderr: expect.stringMatching(DONE),
    });
    expect(await here.exported()).toBe(RESTORED);

    const kept = await Promise.all(here.replaced().map((old) => here.exported(`${old}/plants.db`)));
    expect(kept).toContain(OLD);
    expect(existsSync(here.at("plants.db-replacing"))).toBe(false);
  },
);

const NOTHING = 'Cannot restore "saved.db": i/o error; nothing was changed';
const MOVED =
  'Cannot restore "saved.db": i/o error; the old files are in "HERE/plants.db-replacing", and no server starts: run plant-store restore again';
const DONE_BUT =
  'Restored "saved.db", but a later step failed: i/o error; old files are in "HERE/plants.db-replacing" or "HERE/plants.db-replaced-';

/**
 * Each step that may fail, with what the message says. What a start finds then is the same as after
 * a kill.
 */
const FAILURES = [
  { step: "mkdir", name: "plants.db-replacing", says: NOTHING, finds: OLD },
  { step: "rename", name: "plants.db", says: NOTHING, finds: OLD },
  { step: "fsync", name: "plants.db-replacing", says: MOVED, finds: undefined },
  { step: "rename", name: "plants.db-wal", says: MOVED, finds: undefined },
  { step: "link", name: "plants.db", says: MOVED, finds: undefined },
  { step: "rename", name: "plants.db-replacing", says: DONE_BUT, finds: RESTORED },
];

test.skipIf(skipsStrace).each(FAILURES)(
  "a restore that fails at the $step of $name says what is where",
  async ({ step, name, says, finds }) => {
    using here = await world();
    const program = injecting(`${step}(at2?)?`, here.at(name), "error=EIO");

    const { exitCode, stderr } = await runToEnd({
      ...here.options,
      program,
      args: ["restore", "saved.db"],
    });

    expect({ exitCode, stderr: stderr.replaceAll(here.at("").replace(/\/$/, ""), "HERE") }).toEqual(
      {
        exitCode: 1,
        stderr: expect.stringMatching(new RegExp(`^${RegExp.escape(says)}[^\n]*\n$`)),
      },
    );

    if (finds === undefined) expect(existsSync(here.at("plants.db"))).toBe(false);
    else expect(await here.exported()).toBe(finds);

    // A second failure does not forget the first.
    const failing = injecting("link(at)?", here.at("plants.db"), "error=EIO");
    const again = await runToEnd({
      ...here.options,
      program: failing,
      args: ["restore", "saved.db"],
    });
    expect(again.stderr.replaceAll(here.at("").replace(/\/$/, ""), "HERE")).toBe(`${MOVED}\n`);

    expect(await here.call("restore", "saved.db")).toMatchObject({ exitCode: 0 });
    expect(await here.exported()).toBe(RESTORED);
  },
);

test.skipIf(skipsStrace).each(["restore saved.db", "backup copy.db"])(
  "without hard links, as on vfat, %s is refused before anything is moved",
  async (command) => {
    using here = await world();
    const before = readdirSync(here.at("")).toSorted();

    for (const error of ["EPERM", "ENOSYS", "EOPNOTSUPP"]) {
      const program = injecting("link(at)?", undefined, `error=${error}`);
      expect(await runToEnd({ ...here.options, program, args: command.split(" ") })).toEqual({
        exitCode: 1,
        stdout: "",
        stderr: `Cannot write to "${here.at("").replace(/\/$/, "")}": its file system has no hard links; use another one\n`,
      });
    }

    expect(readdirSync(here.at("")).toSorted()).toEqual(before);
    expect(await here.exported()).toBe(OLD);
  },
);

test.skipIf(skipsStrace).each(["backup copy.db", "restore saved.db"])(
  "%s syncs files and directories that were open before they changed",
  async (command) => {
    using here = await world();
    const log = here.at("strace.log");
    const program = ["strace", "-f", "-y", "-o", log, "-e", TRACED, ...executable()];
    const ended = await runToEnd({ ...here.options, program, args: command.split(" ") });
    expect(ended).toMatchObject({ exitCode: 0 });

    const { synced, late } = lateSyncs(log, realpathSync(here.at("")));
    // SQLite's own are beside them, and what is synced last counts.
    const own = (names: string[]) =>
      names.filter((name) => !/-journal$|-wal$|backup-\w+$/.test(name));
    expect(own(synced).length).toBeGreaterThan(1);
    expect(own(late)).toEqual([]);
  },
);

test.skipIf(skipsStrace)(
  "a draft that cannot be removed does not make a restore fail",
  async () => {
    using here = await world();
    const program = injecting("unlinkat", undefined, "error=EIO");
    const { exitCode, stderr } = await runToEnd({
      ...here.options,
      program,
      args: ["restore", "saved.db"],
    });
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: expect.stringMatching(DONE) });
    expect(readdirSync(here.at("")).filter((name) => name.startsWith("."))).toHaveLength(1);
  },
);

/** What opens a database, and the how manieth time SQLite does: before that, a server tries to create it. */
const OPENING: [command: string, opened: number][] = [
  ["--port 0", 2],
  ["export", 1],
  ["backup copy.db", 1],
];

test.skipIf(skipsStrace).each(OPENING)(
  "%s, which has opened the old file but not locked it yet, uses neither that file nor another's WAL",
  async (command, opened) => {
    using here = await world();
    // One plant is in the old file, and the next one in its WAL.
    await here.call("token", "list");
    {
      await using server = await startServer(here.options);
      expect((await post(server.url, ivy({ id: 3n }))).status).toBe(200);
    }
    const log = here.at("strace.log");
    const inject = `inject=/^open(at)?$:signal=STOP:when=${opened}`;

    {
      // With -D the process is our child, and not that of strace.
      const traced = ["strace", "-D", "-f", "-o", log, "-P", here.at("plants.db"), "-e", inject];
      const program = [...traced, ...executable()];
      await using opening = start({ ...here.options, program, args: command.split(" ") });
      const isStopped = () =>
        existsSync(log) && readFileSync(log, "utf8").includes("stopped by SIGSTOP");
      while (!isStopped() && opening.child.exitCode === null) await Bun.sleep(5);
      expect(await here.call("restore", "saved.db")).toMatchObject({ exitCode: 0 });
      opening.child.kill("SIGCONT");
      const [line] = await opening.stderr.until(/^Cannot open .*\n|Plant Store listens/m);
      expect(line).toBe(
        'Cannot open database "plants.db": it was replaced while it was opened; try again\n',
      );
    }

    expect(await here.exported()).toBe(RESTORED);
    expect(await here.exported(`${here.replaced()[0]}/plants.db`)).toBe(
      `${OLD}${jsonOf(ivy({ id: 3n }))}\n`,
    );
  },
);

test("a backup that was copied by hand beside the WAL of the file before is refused, and a restore puts it right", async () => {
  using here = await world();
  // Moves everything out of the WAL.
  await here.call("token", "list");
  {
    await using server = await startServer(here.options);
    const plants = Array.from({ length: 200 }, (_, id) => fern({ id, [TEXT]: `plant ${id}` }));
    await Promise.all(plants.map((plant) => post(server.url, plant)));
  }
  makeLargeDatabase(here.at("other.db"), 5_000);
  await here.call("backup", "copy.db", "--database", "other.db");
  copyFileSync(here.at("copy.db"), here.at("plants.db"));

  const { stderr } = await here.call("token", "list");
  expect(stderr).toBe(
    'Cannot open database "plants.db": it is corrupt (database disk image is malformed); if you copied it here, "plants.db-wal" is of the file before: put the copy in place with plant-store restore\n',
  );

  expect(await here.call("restore", "saved.db")).toMatchObject({ exitCode: 0 });
  expect(await here.exported()).toBe(RESTORED);
});

/** A directory with a database of three tokens, and a backup of it. */
async function withTokens() {
  const directory = emptyDirectory();
  const { path: cwd, at } = directory;
  const call = (...args: string[]) => runToEnd({ cwd, args });
  const create = async (name: string) => (await call("token", "create", name)).stdout.trim();
  const tokens = {
    kept: await create("kept"),
    leaked: await create("leaked"),
    deleted: await create("deleted"),
  };
  expect(await call("backup", "saved.db")).toMatchObject({ exitCode: 0 });

  return {
    ...directory,
    call,
    /** What the API says to a plant with each token. */
    async statuses() {
      await using server = await startServer({ cwd });
      const answers = Object.values(tokens).map((token) => post(server.url, undefined, { token }));
      return (await Promise.all(answers)).map(({ status }) => status);
    },
    removeDatabase: () =>
      ["", "-wal", "-shm"].forEach((suffix) => rmSync(at(`plants.db${suffix}`), { force: true })),
  };
}

const ACCEPTED_AGAIN =
  'These tokens are valid as in the backup, and may have been revoked or deleted since: "kept", "leaked", "deleted". Revoke those that should not be valid.\n';

test("a restore keeps what was revoked since the backup, and names what was deleted, however often it is run", async () => {
  using here = await withTokens();
  await here.call("token", "revoke", "leaked");
  await here.call("token", "delete", "deleted", "--yes");
  await here.call("token", "create", "deleted");

  const { stderr } = await here.call("restore", "saved.db");
  expect(stderr).toContain("\nRevoked after the backup, and still revoked: 1 token\n");
  expect(stderr).toContain('may have been revoked or deleted since: "deleted". Revoke');
  expect(await here.statuses()).toEqual([200, 401, 200]);
  expect((await here.call("token", "list")).stdout).toMatch(/^leaked +revoked /m);

  const again = await here.call("restore", "saved.db", "--json");
  expect(JSON.parse(again.stdout)).toMatchObject({ endedTokens: 1, unconfirmedTokens: [] });
  expect(await here.statuses()).toEqual([200, 401, 200]);
  expect(await here.call("check")).toMatchObject({ exitCode: 0 });
});

const NOT_KNOWN: [string, (here: Awaited<ReturnType<typeof withTokens>>) => unknown][] = [
  ["is corrupt", ({ at }) => writeFileSync(at("plants.db"), "garbage".repeat(1_000))],
  ["is gone", (here) => here.removeDatabase()],
  [
    "is a new one",
    async (here) => {
      here.removeDatabase();
      await here.call("token", "create", "other");
    },
  ],
];

test.each(NOT_KNOWN)(
  "where the replaced database %s, a restore names the tokens that are accepted as in the backup",
  async (_what, lose) => {
    using here = await withTokens();
    await here.call("token", "revoke", "leaked");
    await lose(here);

    const { exitCode, stderr } = await here.call("restore", "saved.db");
    expect({ exitCode, stderr }).toEqual({
      exitCode: 0,
      stderr: expect.stringMatching(
        new RegExp(`^Restored [^\n]*\n(?:To add [^\n]*\n)?${RegExp.escape(ACCEPTED_AGAIN)}$`),
      ),
    });
    expect(await here.statuses()).toEqual([200, 200, 200]);
  },
);

test("a restore of a newer backup over an older one keeps the tokens that the older one did not have yet", async () => {
  using here = await withTokens();
  await here.call("token", "create", "late");
  expect(await here.call("backup", "newer.db")).toMatchObject({ exitCode: 0 });
  expect(await here.call("restore", "saved.db")).toMatchObject({ exitCode: 0 });

  const { stdout } = await here.call("restore", "newer.db", "--json");
  expect(JSON.parse(stdout)).toMatchObject({ endedTokens: 0, unconfirmedTokens: ["late"] });
});

test.skipIf(skipsStrace)(
  "a file system that cannot map shared memory, as mergerfs by default, is named as the cause",
  async () => {
    using here = await world();
    const program = injecting("mmap", here.at("plants.db-shm"), "error=ENODEV");
    expect(await runToEnd({ ...here.options, program, args: ["token", "list"] })).toEqual({
      exitCode: 1,
      stdout: "",
      stderr:
        'Cannot open database "plants.db": its file system cannot map shared memory, which SQLite\'s WAL needs; use another one, or switch mmap on (mergerfs: cache.files)\n',
    });
  },
);
