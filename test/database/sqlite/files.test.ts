import { expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
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

import { DatabaseError } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { openPlants } from "../../../src/database/sqlite/pages.ts";
import { openSqliteWorker, sqliteAdapter } from "../../../src/database/sqlite/sqlite_adapter.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/sqlite_database.ts";
import { addPlants } from "../../support/add_plants.ts";
import { skipped } from "../../support/missing.ts";
import { fern } from "../../support/plants.ts";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = fern();
const ACCESSES = ["create", "write", "read"] as const;

/** What a script in another process begins with. */
const PRELUDE = `
  import { connect } from ${JSON.stringify(join(ROOT, "src/database/sqlite/bun_driver.ts"))};
  import { addPlants } from ${JSON.stringify(join(ROOT, "test/support/add_plants.ts"))};
  import { sqliteDatabase } from ${JSON.stringify(join(ROOT, "src/database/sqlite/sqlite_database.ts"))};
  const [, path, access] = process.argv;`;

/** Runs a script in another process, which is ended if it hangs. Returns what it prints. */
function runApart(script: string, ...args: string[]): string {
  const command = [process.execPath, "-e", PRELUDE + script, ...args];
  return Bun.spawnSync(command, { timeout: 10_000, killSignal: "SIGKILL" })
    .stdout.toString()
    .trim();
}

/** Ends a script, and leaves its files as they are. */
const KILL = `process.kill(process.pid, "SIGKILL");`;

/** A database whose last plants are in its WAL alone, as a kill leaves it. */
function killed(path: string): void {
  runApart(`addPlants(connect(path))([{ id: 1n, name: "Fern" }]); ${KILL}`, path);
}

test.each(ACCESSES)(
  "connect() for access to %s leaves the WAL of a file that is not there, or is empty",
  (access) => {
    using directory = emptyDirectory();
    const [path, moved, wal] = ["plants.db", "moved.db", "plants.db-wal"].map(directory.at) as [
      string,
      string,
      string,
    ];
    killed(path);

    const before = readFileSync(wal);
    expect(before.length).toBeGreaterThan(0);

    renameSync(path, moved);
    for (const empty of [false, true]) {
      if (empty) writeFileSync(path, "");
      expect(() => connect(path, { access })).toThrow(
        '"plants.db-wal" holds plants of a file that is not there: never move or delete it; put that file back beside it, or restore a backup, which keeps it',
      );
      expect([existsSync(path), readFileSync(wal).equals(before)]).toEqual([empty, true]);
    }

    renameSync(moved, path);
    using database = connect(path);
    expect(addPlants(database)([FERN])).toEqual(["present"]);
  },
);

test.each(ACCESSES)(
  "connect() for access to %s says of a file whose tables were in its WAL that the WAL is missing, and makes none",
  (access) => {
    using directory = emptyDirectory();
    const path = directory.at("plants.db");
    killed(path);
    mkdirSync(directory.at("away"));
    for (const suffix of ["-wal", "-shm"])
      renameSync(path + suffix, directory.at(`away/plants.db${suffix}`));
    const before = readFileSync(path);

    expect(() => connect(path, { access })).toThrow(
      new DatabaseError(
        `Cannot open database "${path}": its WAL is missing, and with it all that was stored: put "plants.db-wal" back beside it, or restore a backup; if nothing was ever stored, move "plants.db" away`,
      ),
    );
    expect(readdirSync(directory.path).toSorted()).toEqual(["away", "plants.db"]);
    expect(readFileSync(path).equals(before)).toBe(true);

    for (const suffix of ["-wal", "-shm"])
      renameSync(directory.at(`away/plants.db${suffix}`), path + suffix);
    using database = connect(path);
    expect(addPlants(database)([FERN])).toEqual(["present"]);
  },
);

test("connect() creates the tables of a file whose first start was killed before it had any", () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  const script = `
    import { Database } from "bun:sqlite";
    const client = new Database(process.argv[1]);
    client.run("PRAGMA journal_mode = WAL");
    client.run("PRAGMA schema_version");`;
  runApart(script + KILL, path);
  expect(readdirSync(directory.path).toSorted()).toEqual([
    "plants.db",
    "plants.db-shm",
    "plants.db-wal",
  ]);

  using database = connect(path);
  expect(addPlants(database)([FERN])).toEqual(["added"]);
});

test("connect() refuses a path that is too long for SQLite before it makes a file", () => {
  using directory = emptyDirectory();
  const deep = join(directory.path, "d".repeat(200), "e".repeat(200));
  mkdirSync(deep, { recursive: true });
  const pathOf = (bytes: number) => join(deep, "p".repeat(bytes - deep.length - 1));

  for (const access of ACCESSES) {
    expect(() => connect(pathOf(505), { access })).toThrow(
      "its path is longer than 504 bytes; use a shorter one",
    );
  }

  expect(readdirSync(deep)).toEqual([]);
  connect(pathOf(504)).close();
});

/** A directory with ways to a file that is not there yet: `deep/data/plants.db`. */
function waysToNoFile() {
  const directory = emptyDirectory();
  mkdirSync(directory.at("deep/data/more"), { recursive: true });
  symlinkSync("deep/data/more", directory.at("more"));
  symlinkSync("deep/data/second", directory.at("first"));
  symlinkSync("plants.db", directory.at("deep/data/second"));
  return { ...directory, file: directory.at("deep/data/plants.db") };
}

// "more/.." is the directory that the link leads out of.
const WAYS = ["more/../plants.db", "deep/data//plants.db"];

test.each(WAYS)("connect() by %s makes a file that is not there yet, for its owner only", (way) => {
  using ways = waysToNoFile();
  connect(`${ways.path}/${way}`).close();
  expect(readdirSync(ways.path).toSorted()).toEqual(["deep", "first", "more"]);
  expect((statSync(ways.file).mode & 0o777).toString(8)).toBe("600");
});

const REFUSED_WAYS = [
  "first",
  "none/../deep/data/plants.db",
  "deep/data/plants.db/",
  "deep/data/plants.db/.",
];

test.each([...WAYS, ...REFUSED_WAYS])(
  "connect() by %s leaves a WAL whose file is not there",
  (way) => {
    using ways = waysToNoFile();
    killed(ways.file);
    const before = readFileSync(`${ways.file}-wal`);
    rmSync(ways.file);
    expect(() => connect(`${ways.path}/${way}`)).toThrow(DatabaseError);
    expect(readFileSync(`${ways.file}-wal`).equals(before)).toBe(true);
  },
);

const REFUSED_PATHS: [name: string, says: string][] = [
  ["plants.db/", "it is not a file"],
  ["plants.db/.", "it is not a file"],
  ["to-directory.db", "it is not a file"],
  ["directory", "it is not a file"],
  ["pipe", "it is not a file"],
  ["dangling.db", "it is a symbolic link to a file that is not there"],
  ["one.db", "its symbolic links lead to each other"],
  ["missing/plants.db", "there is no such directory"],
];

test.each(REFUSED_PATHS)("connect() by %s is refused: %s; so is a check", async (name, says) => {
  using directory = emptyDirectory();
  connect(directory.at("plants.db")).close();
  mkdirSync(directory.at("directory"));
  Bun.spawnSync(["mkfifo", directory.at("pipe")]);
  symlinkSync("plants.db/", directory.at("to-directory.db"));
  symlinkSync("none.db", directory.at("dangling.db"));
  symlinkSync("other.db", directory.at("one.db"));
  symlinkSync("one.db", directory.at("other.db"));

  const path = `${directory.path}/${name}`;
  for (const access of ACCESSES) {
    expect(() => connect(path, { access })).toThrow(
      new DatabaseError(`Cannot open database "${path}": ${says}`),
    );
  }

  const check = sqliteAdapter(path).check({
    stop: new AbortController().signal,
    onProgress: () => {},
  });
  await expect(check).rejects.toThrow(new DatabaseError(`Cannot open database "${path}": ${says}`));
  expect(existsSync(directory.at("none.db"))).toBe(false);
});

const LOSSES: [what: string, lose: (at: (name: string) => string) => void][] = [
  ["a link that is led to another file", (at) => renameSync(at("other-link.db"), at("link.db"))],
  // SQLite puts the WAL beside the file, not beside the link.
  ["a WAL that is removed from beside a linked file", (at) => rmSync(at("real.db-wal"))],
];

test.each(LOSSES)("%s is noticed while the database is open", async (_what, lose) => {
  using directory = emptyDirectory();
  for (const name of ["real.db", "other.db"]) connect(directory.at(name)).close();
  symlinkSync("real.db", directory.at("link.db"));
  symlinkSync("other.db", directory.at("other-link.db"));

  await using database = sqliteDatabase(connect(directory.at("link.db")));
  const add = () => database.plants.add([FERN], { timeoutMs: 1_000 });
  expect(await add()).toEqual(["added"]);

  lose(directory.at);
  await expect(add()).rejects.toMatchObject({ code: "storage_unavailable" });
});

/** The number of statx(2), and EPERM. */
const DENIED = process.arch === "x64" ? ["332", "1"] : undefined;
const skipsDenied =
  (process.platform !== "linux" || DENIED === undefined || Bun.which("cc") === null) &&
  skipped("a sandbox without statx: it needs Linux on x64 and a C compiler (cc)");

test.skipIf(skipsDenied)(
  "a sandbox that denies statx(2), and so the time of birth, keeps no plant out, and forgets no marker",
  () => {
    using directory = emptyDirectory();
    const [deny, path] = [directory.at("deny"), directory.at("plants.db")];
    Bun.spawnSync(["cc", "-o", deny, join(ROOT, "test/support/deny_syscall.c")]);

    const run = (script: string) =>
      Bun.spawnSync([deny, ...(DENIED ?? []), process.execPath, "-e", PRELUDE + script, path])
        .stdout.toString()
        .trim();
    const adding = run(`
      const database = sqliteDatabase(connect(path));
      for (const id of [1n, 2n])
        console.log(String(await database.plants.add([{ id, name: "Fern" }], { timeoutMs: 1_000 })));
      database.reportCorruption("a page is gone");`);
    expect(adding).toBe("added\nadded");

    // Changes the ctime, which takes the place of the time of birth then.
    chmodSync(path, 0o640);
    expect(run("try { connect(path); } catch ({ message }) { console.log(message); }")).toContain(
      "it is corrupt (a page is gone)",
    );
  },
);

test.each(ACCESSES)(
  "connect() for access to %s refuses a path that is not UTF-8, and touches no file of a similar name",
  (access) => {
    using directory = emptyDirectory();
    // In a string, both directories have this name.
    mkdirSync(directory.at("caf\uFFFD"));
    const script = `${PRELUDE}
      try { connect("plants.db", { access: "${access}" }); } catch (error) { console.log(error.message); }`;
    const enter =
      'cd "$1" && mkdir "$(printf "caf\\351")" && cd "$(printf "caf\\351")" && "$2" -e "$3"';
    const args = [directory.path, process.execPath, script];
    const { stdout } = Bun.spawnSync(["sh", "-c", enter, "sh", ...args]);

    expect(stdout.toString()).toBe(
      'Cannot open database "plants.db": its path is not UTF-8; move it\n',
    );
    expect(readdirSync(directory.at("caf\uFFFD"))).toEqual([]);

    // As the file itself is called by an argument that is not UTF-8.
    expect(() => connect(directory.at("\uFFFD.db"), { access })).toThrow("its path is not UTF-8");
    expect(readdirSync(directory.path)).toHaveLength(2);
  },
);

/**
 * Makes and removes the files beside a database again and again, as processes do that open and
 * close it.
 */
const MAKE_AND_REMOVE = `
  import { closeSync, openSync, unlinkSync } from "node:fs";
  const files = ["-wal", "-shm"].map((suffix) => process.argv[1] + suffix);
  for (let times = 1; ; times++) {
    for (const file of files) closeSync(openSync(file, "w"));
    for (const file of files) unlinkSync(file);
    if (times === 1_000) console.log("running");
  }
`;

test("connect() beside a process that removes the WAL just now says nothing of the files beside the database", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  writeFileSync(path, "This is no database.".repeat(100));
  await using other = Bun.spawn([process.execPath, "-e", MAKE_AND_REMOVE, path]);
  expect((await other.stdout.getReader().read()).value).toBeDefined();

  const refusal = new DatabaseError(`Cannot open database "${path}": file is not a database`);
  for (let times = 0; times < 5_000; times++)
    expect(() => connect(path, { access: "write" })).toThrow(refusal);

  other.kill("SIGKILL");
});

/** May write to the directory of the database in the tests below, and owns nothing else ("nobody"). */
const OTHER_USER = 65_534;

const skipsOtherUser =
  process.getuid?.() !== 0 &&
  skipped("files that another user puts beside a database: giving files away needs root");

/** A database of this user's in a directory that others may write to. */
function sharedDirectory() {
  const directory = emptyDirectory();
  chmodSync(directory.path, 0o1777);
  const path = directory.at("plants.db");
  {
    using client = connect(path);
    addPlants(client)([FERN]);
  }

  return { ...directory, database: path };
}

/**
 * A journal that SQLite rolls back into the database beside it, which has another plant under the
 * same id then.
 */
function plantJournal(file: string): void {
  using attacker = emptyDirectory();
  const script = `
    const client = connect(path);
    addPlants(client)([{ id: 1n, name: "Weed" }]);
    client.run("PRAGMA journal_mode = DELETE");
    client.run("PRAGMA cache_size = 1");
    client.run("BEGIN");
    for (let id = 2; id < 100; id++) client.run("INSERT INTO plants (id, name) VALUES (?, ?)", [id, "x".repeat(4_000)]);`;

  runApart(script + KILL, attacker.at("weeds.db"));
  writeFileSync(file, readFileSync(attacker.at("weeds.db-journal")));
}

/** A marker as the program writes it. */
function forgeMarker(file: string): void {
  const { ino } = statSync(file.replace(/-corrupt$/, ""), { bigint: true });
  writeFileSync(file, JSON.stringify({ inode: `${ino}`, finding: "forged", foundAt: "" }));
}

const makePipe = (file: string) => void Bun.spawnSync(["mkfifo", file]);
const makeEndless = (file: string) => symlinkSync("/dev/zero", file);
const makeEmpty = (file: string) => writeFileSync(file, "");

const MOVE_AWAY = ": find out who put it there, and move it away";
const NOT_REGULAR = `is not a regular file${MOVE_AWAY}`;
const NOT_OURS = "belongs to uid 65534, and the database to uid 0";
const CHOWN = 'if it is yours, give it to the owner of the database: chown -h 0 "DATABASE"-*';
const KEEP = "it holds the newest plants: never move or delete it";

const ATTACKS: [what: string, suffix: string, attack: (file: string) => void, says: string][] = [
  ["a journal", "-journal", plantJournal, `${NOT_OURS}; ${KEEP}; ${CHOWN}`],
  ["a pipe as journal", "-journal", makePipe, NOT_REGULAR],
  ["an empty WAL", "-wal", makeEmpty, `${NOT_OURS}; ${CHOWN}`],
  ["a link as WAL", "-wal", (file) => symlinkSync("plants.db", file), NOT_REGULAR],
  ["an empty index of the WAL", "-shm", makeEmpty, `${NOT_OURS}; ${CHOWN}`],
  ["a forged marker", "-corrupt", forgeMarker, `${NOT_OURS}${MOVE_AWAY}`],
  ["a pipe as marker", "-corrupt", makePipe, NOT_REGULAR],
  ["an endless marker", "-corrupt", makeEndless, NOT_REGULAR],
  ["a marker of a failed fsync", "-unsynced", makeEmpty, `${NOT_OURS}${MOVE_AWAY}`],
  [
    "a link as marker of a failed fsync",
    "-unsynced",
    (file) => symlinkSync("none", file),
    NOT_REGULAR,
  ],
];

const CONNECT = `try { connect(path, { access }); console.log("connected"); } catch (error) { console.log(error.message); }`;

test.skipIf(skipsOtherUser).each(ATTACKS)(
  "connect() refuses %s (%s) that another user has put beside the database",
  async (_what, suffix, attack, says) => {
    using directory = sharedDirectory();
    const { database } = directory;
    const file = database + suffix;

    attack(file);
    if (statSync(file, { throwIfNoEntry: false })?.isFile() && !says.includes("regular"))
      chownSync(file, OTHER_USER, OTHER_USER);

    for (const access of ACCESSES) {
      expect(runApart(CONNECT, database, access)).toBe(
        `Cannot open database "${database}": "plants.db${suffix}" beside it ${says.replace("DATABASE", database)}`,
      );
    }

    rmSync(file);
    await using reader = openPlants(database);
    expect(await Array.fromAsync(reader.pages())).toEqual([[FERN]]);
  },
);

test
  .skipIf(skipsOtherUser)
  .each(ATTACKS.filter(([what]) => /^a forged marker$|^a pipe as marker$/.test(what)))(
  "%s (%s) that another user puts beside the database of a server stops no plant",
  async (_what, suffix, attack) => {
    using directory = sharedDirectory();
    await using database = await openSqliteWorker(directory.database);
    const file = directory.database + suffix;

    attack(file);
    if (attack === forgeMarker) chownSync(file, OTHER_USER, OTHER_USER);

    expect(await database.plants.add([FERN], { timeoutMs: 1_000 })).toEqual(["present"]);

    rmSync(file);
  },
);

test.each([
  ["only its owner can write to", 0o700, false],
  ["its group can write to", 0o770, false],
  ["all can write to, but only replace their own files", 0o1777, false],
  ["all can write to", 0o777, true],
])("connect() for writing in a directory that %s (%o)", (_who, mode, isRefused) => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  connect(path).close();
  chmodSync(directory.path, mode);

  for (const access of ["create", "write"] as const) {
    const open = () => connect(path, { access }).close();
    if (!isRefused) open();
    else
      expect(open).toThrow(
        new DatabaseError(
          `Cannot open database "${path}": other users can write to its directory, and so replace it: chown ${process.getuid?.()} "${directory.path}" && chmod o-w "${directory.path}", or use another directory`,
        ),
      );
  }

  // Reading changes nothing that they could not change.
  connect(path, { access: "read" }).close();
});

test("connect() for writing in a directory that all can write to creates no file", () => {
  using directory = emptyDirectory();
  chmodSync(directory.path, 0o777);
  expect(() => connect(directory.at("plants.db"))).toThrow("other users can write");
  expect(readdirSync(directory.path)).toEqual([]);
});

test("a server on a file with two hard links warns of that", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  connect(path).close();
  linkSync(path, directory.at("second.db"));

  const warnings: string[] = [];

  await using _ = await openSqliteWorker(path, {
    onWarning: (message) => void warnings.push(message),
  });

  expect(warnings).toEqual([
    "The database file has several hard links, and SQLite keeps a WAL for each name: use one name, and remove the others",
  ]);
});
