import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";

import { DatabaseError } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { MIGRATIONS } from "../../../src/database/sqlite/migrations.ts";
import { readPage } from "../../../src/database/sqlite/pages.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/sqlite_database.ts";
import { addPlants } from "../../support/add_plants.ts";
import { openWorker } from "../../support/database_fixture.ts";
import { fern, insertOf, TEXT } from "../../support/plants.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("connect() sets what durability needs", () => {
  using directory = emptyDirectory();
  using database = connect(directory.at("plants.db"), { busyTimeoutMs: 1234 });
  const pragma = (name: string) => database.query(`PRAGMA ${name}`).values()[0]?.[0];
  expect(pragma("journal_mode")).toBe("wal");
  expect(pragma("synchronous")).toBe(2n);
  expect(pragma("busy_timeout")).toBe(1234n);
});

test("connect() makes strict tables: a column takes its own type only", () => {
  using directory = emptyDirectory();
  using database = connect(directory.at("plants.db"));
  database.run(insertOf(fern()));
  expect(() => database.run(`UPDATE plants SET "${TEXT}" = x'00'`)).toThrow(
    "cannot store BLOB value in TEXT column",
  );
});

/**
 * Takes the lock of writers in a file that has no WAL yet, and gives it back by itself: `connect()`
 * holds the thread.
 */
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
  const path = directory.at("plants.db");
  await using holder = Bun.spawn([process.execPath, "-e", HOLD_LOCK, path]);
  expect((await holder.stdout.getReader().read()).value).toBeDefined();
  using database = connect(path);
  expect(addPlants(database)([fern()])).toEqual(["added"]);
});

test("connect() of a file that another process does not let go of ends", () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  using holder = new Database(path);
  holder.run("BEGIN IMMEDIATE");
  expect(() => connect(path, { busyTimeoutMs: 50 })).toThrow(
    `Cannot open database "${path}": database is locked (lslocks names the process); try again`,
  );
});

function databaseFrom(...statements: string[]): (path: string) => void {
  return (path) => {
    using database = new Database(path);
    for (const statement of statements) database.run(statement);
  };
}

/** A database with the schema of a newer plant-store in its WAL alone, as a kill leaves it. */
function killedNewer(path: string): void {
  using newer = connect(`${path}-newer`);
  newer.run("INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('newer', 9999999999999)");
  for (const suffix of ["", "-wal"]) copyFileSync(`${path}-newer${suffix}`, path + suffix);
}

/**
 * Makes a database with free pages, and damages it. The header's fields:
 * https://www.sqlite.org/fileformat2.html
 */
function damagedBy(
  damage: (bytes: Buffer, rootOf: (table: string) => number) => void,
): (path: string) => void {
  return (path) => {
    connect(path).close();
    databaseFrom(
      "CREATE TABLE some (text)",
      "INSERT INTO some VALUES (zeroblob(100000))",
      "DROP TABLE some",
    )(path);

    using database = new Database(path);
    database.run("PRAGMA wal_checkpoint(TRUNCATE)");
    const find = database.query<{ rootpage: number }, [string]>(
      "SELECT rootpage FROM sqlite_schema WHERE name = ?",
    );
    const bytes = readFileSync(path);

    damage(bytes, (table) => find.get(table)?.rootpage as number);
    database.close(true);
    writeFileSync(path, bytes);
  };
}

/** Where the header has the first page of the list of free pages, and how many are free. */
const FREE_LIST = 32;
const FREE_COUNT = 36;
const PAGE_BYTES = 4_096;

const zeroed = (table: string) =>
  damagedBy((bytes, rootOf) =>
    bytes.fill(0, (rootOf(table) - 1) * PAGE_BYTES, rootOf(table) * PAGE_BYTES),
  );

const refused: [string, (path: string) => void, string][] = [
  [
    "text",
    (path) => writeFileSync(path, "This is no database.".repeat(100)),
    "file is not a database",
  ],
  [
    "another application's database",
    databaseFrom("CREATE TABLE notes (text)"),
    "belongs to another application",
  ],
  [
    "another application's database with an id",
    databaseFrom("PRAGMA application_id = 42", "CREATE TABLE plants (id)"),
    "belongs to another application",
  ],
  ["a newer plant-store's database, with its WAL,", killedNewer, "was made by a newer plant-store"],
  ["a damaged database", damagedBy((bytes) => bytes.fill(0xa5, PAGE_BYTES)), "is corrupt"],
  [
    "a damaged table of tokens",
    zeroed("tokens"),
    "it is corrupt (database disk image is malformed)",
  ],
  [
    "a damaged table of their revision",
    zeroed("token_revision"),
    "it is corrupt (database disk image is malformed)",
  ],
  [
    "a migration that lies beyond its page",
    // Behind the header of the page are the places of its cells: those of the three migrations.
    damagedBy((bytes, rootOf) =>
      bytes.writeUInt16BE(4_094, (rootOf("__drizzle_migrations") - 1) * PAGE_BYTES + 12),
    ),
    "it is corrupt (database disk image is malformed)",
  ],
  [
    "a damaged table of migrations",
    zeroed("__drizzle_migrations"),
    "it is corrupt (database disk image is malformed)",
  ],
  [
    "a list of free pages that begins beyond the end",
    damagedBy((bytes) => bytes.writeUInt32BE(9_999, FREE_LIST)),
    "Freelist: invalid page number 9999)",
  ],
  [
    "a wrong number of free pages",
    damagedBy((bytes) => bytes.writeUInt32BE(5, FREE_COUNT)),
    "but should be 5)",
  ],
  [
    "more free pages than pages",
    damagedBy((bytes) => bytes.writeUInt32BE(1_000_000, FREE_COUNT)),
    "it is corrupt (1000000 pages are free of ",
  ],
];

test.each(refused)("connect() refuses %s and leaves it as it was", (_what, make, says) => {
  using directory = emptyDirectory();
  const path = directory.at("some.db");
  make(path);
  const files = ["", "-wal"].map((suffix) => path + suffix).filter((file) => existsSync(file));
  const before = files.map((file) => readFileSync(file));
  const open = () => connect(path, { resetsWal: true });

  expect(open).toThrow(DatabaseError);
  expect(open).toThrow(`Cannot open database "${path}": `);
  expect(open).toThrow(says);
  expect(
    files.map((file, index) => readFileSync(file).equals(before[index] as Buffer)),
  ).not.toContain(false);
});

test("a token whose scopes are NULL has none", async () => {
  using directory = emptyDirectory();
  const client = connect(directory.at("plants.db"));
  client.run(
    "INSERT INTO tokens (name, digest, created_at) VALUES ('greenhouse', zeroblob(32), 0)",
  );
  await using database = sqliteDatabase(client);
  expect(await database.tokens.list()).toMatchObject([{ name: "greenhouse", scopes: [] }]);
});

test("connect() makes a migration that is older than another one which the database has, as a fork takes it with a later version", () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  const [, { sql, when } = { sql: "", when: 0 }] = MIGRATIONS;
  using client = connect(path);
  for (const column of ["expires_at", "revoked_at", "last_used_at"]) {
    expect(sql).toContain(column);
    client.run(`ALTER TABLE tokens DROP COLUMN ${column}`);
  }
  client.run("DELETE FROM __drizzle_migrations WHERE created_at = ?", [when]);

  let applied: readonly { when: number }[] = [];
  using migrated = connect(path, { onMigrated: (some) => (applied = some) });

  expect(applied.map((migration) => migration.when)).toEqual([when]);
  expect(migrated.query("SELECT expires_at, last_used_at FROM tokens").all()).toEqual([]);
});

test("connect() refuses a database with a migration that it does not know, even an older one", () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  {
    using client = connect(path);
    client.run("INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('', 1)");
  }
  expect(() => connect(path)).toThrow("it was made by a newer plant-store");
});

/** A database with a plant in its WAL, as after an fsync that failed. */
function unsynced() {
  const directory = emptyDirectory();
  const path = directory.at("plants.db");

  // While it is open, the WAL stays.
  const reader = connect(path);
  addPlants(reader)([fern()]);
  writeFileSync(`${path}-unsynced`, "");

  return {
    path,
    reader,
    isMarked: () => existsSync(`${path}-unsynced`),
    [Symbol.dispose]() {
      reader.close(true);
      directory[Symbol.dispose]();
    },
  };
}

test("after a failed fsync the first process that may write begins the WAL anew, and removes the mark", () => {
  using database = unsynced();
  using client = connect(database.path, { access: "write" });
  expect(client.query("PRAGMA wal_checkpoint").values()).toEqual([[0n, 1n, 1n]]);
  expect(database.isMarked()).toBe(false);
  expect(readPage(client)(1n)).toEqual([fern()]);
});

test("after a failed fsync no process that may write begins beside one that reads", () => {
  using database = unsynced();
  database.reader.run("BEGIN");
  database.reader.query("SELECT 1 FROM plants").get();
  expect(() => connect(database.path, { access: "write", busyTimeoutMs: 50 })).toThrow(
    `Cannot open database "${database.path}": an earlier fsync failed, and another process is reading the WAL`,
  );
  expect(database.isMarked()).toBe(true);

  database.reader.run("COMMIT");
  connect(database.path, { access: "write" }).close(true);
  expect(database.isMarked()).toBe(false);
});

test("a server whose WAL another process reads at the start warns that it could not begin a new one", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  using reader = connect(path);
  addPlants(reader)([fern()]);
  reader.run("BEGIN");
  reader.query("SELECT count(*) FROM plants").get();

  const warnings: unknown[][] = [];
  await using _ = await openWorker(path, { onWarning: (...of) => void warnings.push(of) });
  expect(warnings).toContainEqual([
    "Another process reads the WAL, so this start could not begin a new one",
    { reason: "if it is Litestream, stop it before the server starts" },
  ]);
});
