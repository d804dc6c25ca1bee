import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
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
import { connect } from "../../../src/database/sqlite/connection.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/database.ts";
import { DatabaseError } from "../../../src/database/database.ts";
import { unsyncedMark } from "../../../src/database/sqlite/unsynced_mark.ts";
import { plantWriter } from "../../../src/database/sqlite/plants.ts";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("connect() sets what durability needs", () => {
  using directory = emptyDirectory();
  using database = connect(join(directory.path, "plants.db"), { busyTimeoutMs: 1234 });
  const pragma = (name: string) => database.query(`PRAGMA ${name}`).values()[0]?.[0];
  expect(pragma("journal_mode")).toBe("wal");
  expect(pragma("synchronous")).toBe(2n);
  expect(pragma("busy_timeout")).toBe(1234n);
});

test("connect() makes strict tables: a column takes its own type only", () => {
  using directory = emptyDirectory();
  using database = connect(join(directory.path, "plants.db"));
  expect(() => database.run("INSERT INTO plants VALUES (1, x'00', NULL)")).toThrow(
    "cannot store BLOB value in TEXT column",
  );
});

test("connect() of a file that it made finds what was stored", () => {
  using directory = emptyDirectory();
  const path = join(directory.path, "plants.db");
  const add = () => {
    using client = connect(path);
    return plantWriter(client)([{ id: 1n, name: "Fern" }]);
  };
  expect(add()).toEqual(["added"]);
  expect(add()).toEqual(["present"]);
});

/** A database whose last plants are in its WAL alone, as a kill leaves it. */
function killed(path: string): void {
  const script = `
    import { connect } from ${JSON.stringify(join(ROOT, "src/database/sqlite/connection.ts"))};
    import { plantWriter } from ${JSON.stringify(join(ROOT, "src/database/sqlite/plants.ts"))};
    plantWriter(connect(process.argv[1]))([{ id: 1n, name: "Fern" }]);
    process.kill(process.pid, "SIGKILL");`;
  Bun.spawnSync([process.execPath, "-e", script, path]);
}

test.each(["create", "write", "read"] as const)(
  "connect() for access to %s leaves the WAL of a file that is not there, or is empty, as it was",
  (access) => {
    using directory = emptyDirectory();
    const [path, moved, wal] = ["plants.db", "moved.db", "plants.db-wal"].map((name) => join(directory.path, name)) as [
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
        access === "read" && !empty
          ? "there is no such file"
          : '"plants.db-wal" holds plants of a file that is not there',
      );
      expect([existsSync(path), readFileSync(wal).equals(before)]).toEqual([empty, true]);
    }
    renameSync(moved, path);
    using database = connect(path);
    expect(plantWriter(database)([{ id: 1n, name: "Fern" }])).toEqual(["present"]);
  },
);

/** A directory with ways to a file that is not there yet: `deep/data/plants.db`. */
function waysToNoFile() {
  const directory = emptyDirectory();
  const at = (name: string) => join(directory.path, name);
  mkdirSync(at("deep/data/more"), { recursive: true });
  symlinkSync("deep/data/more", at("more"));
  symlinkSync("deep/data/second", at("first"));
  symlinkSync("plants.db", at("deep/data/second"));
  // Where "more/.." is the directory that it leads out of.
  symlinkSync("more/../plants.db", at("upwards"));
  return { ...directory, file: at("deep/data/plants.db") };
}

const WAYS = ["first", "upwards", "more/../plants.db", "deep/data//plants.db"];

test.each(WAYS)("connect() by %s, where there is no file yet, makes it for its owner only", (way) => {
  using ways = waysToNoFile();
  connect(`${ways.path}/${way}`).close();
  expect(readdirSync(ways.path).toSorted()).toEqual(["deep", "first", "more", "upwards"]);
  expect((statSync(ways.file).mode & 0o777).toString(8)).toBe("600");
});

const OTHER_WAYS = ["none/../deep/data/plants.db", "deep/data/plants.db/", "deep/data/plants.db/."];

test.each([...WAYS, ...OTHER_WAYS])("connect() by %s leaves a WAL whose file is not there", (way) => {
  using ways = waysToNoFile();
  killed(ways.file);
  const before = readFileSync(`${ways.file}-wal`);
  rmSync(ways.file);
  expect(() => connect(`${ways.path}/${way}`)).toThrow(DatabaseError);
  expect(readFileSync(`${ways.file}-wal`).equals(before)).toBe(true);
});

test.each(["plants.db/", "plants.db/.", "link.db"])("connect() by %s, which names a directory, is refused", (name) => {
  using directory = emptyDirectory();
  connect(join(directory.path, "plants.db")).close();
  symlinkSync("plants.db/", join(directory.path, "link.db"));
  const path = `${directory.path}/${name}`;
  for (const access of ["create", "write", "read"] as const) {
    expect(() => connect(path, { access })).toThrow(`database "${path}": it is not a file`);
  }
});

test("a link that is led to another file is noticed by who has the one before open", async () => {
  using directory = emptyDirectory();
  const at = (name: string) => join(directory.path, name);
  for (const name of ["first.db", "second.db"]) connect(at(name)).close();
  symlinkSync("first.db", at("link.db"));
  await using database = sqliteDatabase(connect(at("link.db")));
  await database.plants.probe();
  rmSync(at("link.db"));
  symlinkSync("second.db", at("link.db"));
  await expect(database.plants.probe()).rejects.toMatchObject({ code: "storage_unavailable" });
});

test("connect() in a directory whose name is no UTF-8 makes the file there", () => {
  using directory = emptyDirectory();
  const script = `
    import { connect } from ${JSON.stringify(join(ROOT, "src/database/sqlite/connection.ts"))};
    connect("plants.db").close();
    connect("plants.db", { access: "read" }).close();`;
  const { exitCode, stderr } = Bun.spawnSync(
    [
      "sh",
      "-c",
      'cd "$1" && mkdir "$(printf "caf\\351")" && cd caf* && "$2" -e "$3"',
      "sh",
      directory.path,
      process.execPath,
      script,
    ],
    { env: process.env },
  );
  expect([exitCode, stderr.toString()]).toEqual([0, ""]);
  expect(readdirSync(directory.path, "buffer").map((name) => name.toString("latin1"))).toEqual(["caf\xe9"]);
});

test("a link's name may have the character that stands for what is no UTF-8", () => {
  using directory = emptyDirectory();
  const [file, link] = ["\uFFFD.db", "link.db"].map((name) => join(directory.path, name)) as [string, string];
  symlinkSync(file, link);
  connect(link).close();
  unsyncedMark(file).write();
  expect(unsyncedMark(link).isThere()).toBe(true);
});

test("connect() by as many links as the system follows makes the file", () => {
  using directory = emptyDirectory();
  const at = (link: number) => join(directory.path, `${link}.db`);
  for (let link = 1; link <= 40; link++) symlinkSync(at(link - 1), at(link));
  connect(at(40)).close();
  expect(statSync(at(0)).mode & 0o777).toBe(0o600);
});

test("connect() by symbolic links that lead to each other is refused", () => {
  using directory = emptyDirectory();
  const [one, other] = ["one", "other"].map((name) => join(directory.path, name)) as [string, string];
  symlinkSync(other, one);
  symlinkSync(one, other);
  for (const access of ["create", "write", "read"] as const)
    expect(() => connect(one, { access })).toThrow(DatabaseError);
});

/** Takes the lock of writers in a file that has no WAL yet, and gives it back by itself: `connect()` holds the thread. */
const HOLD_LOCK = `
  import { Database } from "bun:sqlite";
  const database = new Database(process.argv[1], { create: true });
  database.run("BEGIN IMMEDIATE");
  console.log("locked");
  Bun.sleepSync(200);
  database.close(true);
`;

test("connect() of a file that another process is making waits for it", async () => {
  using directory = emptyDirectory();
  const path = join(directory.path, "plants.db");
  await using holder = Bun.spawn([process.execPath, "-e", HOLD_LOCK, path]);
  expect((await holder.stdout.getReader().read()).value).toBeDefined();
  using database = connect(path);
  expect(plantWriter(database)([{ id: 1n, name: "Fern" }])).toEqual(["added"]);
});

test("connect() of a file that another process does not let go of ends", () => {
  using directory = emptyDirectory();
  const path = join(directory.path, "plants.db");
  using holder = new Database(path);
  holder.run("BEGIN IMMEDIATE");
  expect(() => connect(path, { busyTimeoutMs: 50 })).toThrow(`Cannot open database "${path}": database is locked`);
});

/** Makes and removes the files beside a database again and again, as processes do that open and close it. */
const MAKE_AND_REMOVE = `
  import { closeSync, openSync, unlinkSync } from "node:fs";
  const files = ["-wal", "-shm"].map((suffix) => process.argv[1] + suffix);
  for (let times = 1; ; times++) {
    for (const file of files) closeSync(openSync(file, "w"));
    for (const file of files) unlinkSync(file);
    if (times === 1_000) console.log("running");
  }
`;

test("connect() beside a process that removes the WAL just now says nothing of files that may not be written", async () => {
  using directory = emptyDirectory();
  const path = join(directory.path, "plants.db");
  await using other = Bun.spawn([process.execPath, "-e", MAKE_AND_REMOVE, path]);
  expect((await other.stdout.getReader().read()).value).toBeDefined();
  const reasons = new Set(Array.from({ length: 5_000 }, () => refusal(path)));
  other.kill("SIGKILL");
  // There is no file at all, which is found after the files beside it were looked at.
  expect([...reasons]).toEqual([`Cannot open database "${path}": unable to open database file`]);
});

function refusal(path: string): unknown {
  try {
    return connect(path, { access: "write" });
  } catch (error) {
    return (error as DatabaseError).message;
  }
}

function databaseFrom(...statements: string[]): (path: string) => void {
  return (path) => {
    using database = new Database(path);
    for (const statement of statements) database.run(statement);
  };
}

function ours(path: string): void {
  connect(path).close();
}

/** Makes a database with free pages, and damages it. The header's fields: https://www.sqlite.org/fileformat2.html */
function damagedBy(damage: (bytes: Buffer, rootOf: (table: string) => number) => void): (path: string) => void {
  return (path) => {
    ours(path);
    databaseFrom("CREATE TABLE some (text)", "INSERT INTO some VALUES (zeroblob(100000))", "DROP TABLE some")(path);
    using database = new Database(path);
    database.run("PRAGMA wal_checkpoint(TRUNCATE)");
    const find = database.query<{ rootpage: number }, [string]>("SELECT rootpage FROM sqlite_schema WHERE name = ?");
    const bytes = readFileSync(path);
    damage(bytes, (table) => find.get(table)?.rootpage as number);
    database.close(true);
    writeFileSync(path, bytes);
  };
}

/** Where the header has the first page of the list of free pages, and how many are free. */
const [FREE_LIST, FREE_COUNT, PAGE_BYTES] = [32, 36, 4_096];

const zeroed = (table: string) =>
  damagedBy((bytes, rootOf) => bytes.fill(0, (rootOf(table) - 1) * PAGE_BYTES, rootOf(table) * PAGE_BYTES));

const refused: [string, (path: string) => void, string][] = [
  ["text", (path) => writeFileSync(path, "This is no database.".repeat(100)), "file is not a database"],
  ["another application's database", databaseFrom("CREATE TABLE notes (text)"), "belongs to another application"],
  [
    "another application's database with an id",
    databaseFrom("PRAGMA application_id = 42", "CREATE TABLE plants (id)"),
    "belongs to another application",
  ],
  [
    "a newer plant-store's database",
    (path) => {
      ours(path);
      databaseFrom("INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('newer', 9999999999999)")(path);
    },
    "was made by a newer plant-store",
  ],
  [
    "a damaged database",
    (path) => {
      ours(path);
      const bytes = readFileSync(path);
      writeFileSync(path, bytes.fill(0xa5, 4096));
    },
    "is damaged",
  ],
  ["a damaged table of tokens", zeroed("tokens"), "it is damaged (database disk image is malformed)"],
  ["a damaged table of their revision", zeroed("token_revision"), "it is damaged (database disk image is malformed)"],
  ["a damaged table of migrations", zeroed("__drizzle_migrations"), "it is damaged (database disk image is malformed)"],
  [
    "a list of free pages that begins beyond the end",
    damagedBy((bytes) => bytes.writeUInt32BE(9_999, FREE_LIST)),
    "Freelist: invalid page number 9999)",
  ],
  [
    "a list of free pages that begins at the plants",
    damagedBy((bytes, rootOf) => bytes.writeUInt32BE(rootOf("plants"), FREE_LIST)),
    "Freelist: ",
  ],
  [
    "a list of free pages of garbage",
    damagedBy((bytes) => bytes.fill(0xab, (bytes.readUInt32BE(FREE_LIST) - 1) * PAGE_BYTES)),
    "Freelist: ",
  ],
  ["a wrong number of free pages", damagedBy((bytes) => bytes.writeUInt32BE(5, FREE_COUNT)), "but should be 5)"],
  [
    "more free pages than pages",
    damagedBy((bytes) => bytes.writeUInt32BE(1_000_000, FREE_COUNT)),
    "it is damaged (1000000 pages are free of ",
  ],
];

test.each(refused)("connect() refuses %s and leaves it as it was", (_what, make, says) => {
  using directory = emptyDirectory();
  const path = join(directory.path, "some.db");
  make(path);
  const before = readFileSync(path);
  expect(() => connect(path)).toThrow(DatabaseError);
  expect(() => connect(path)).toThrow(`Cannot open database "${path}": `);
  expect(() => connect(path)).toThrow(says);
  expect(readFileSync(path).equals(before)).toBe(true);
});

test("connect() refuses a path in a directory that is not there", () => {
  using directory = emptyDirectory();
  const path = join(directory.path, "missing", "plants.db");
  expect(() => connect(path)).toThrow(`Cannot open database "${path}": there is no such directory`);
});

test("connect() leaves the WAL of a newer plant-store that was killed as it was", () => {
  using directory = emptyDirectory();
  const [path, killed] = ["plants.db", "killed.db"].map((name) => join(directory.path, name)) as [string, string];
  const files = [killed, `${killed}-wal`];
  {
    using newer = connect(path);
    newer.run("INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('newer', 9999999999999)");
    for (const suffix of ["", "-wal"]) copyFileSync(path + suffix, killed + suffix);
  }
  const before = files.map((file) => readFileSync(file));
  expect(() => connect(killed, { beginWal: true })).toThrow("it was made by a newer plant-store");
  expect(files.map((file, index) => readFileSync(file).equals(before[index] as Buffer))).toEqual([true, true]);
});
