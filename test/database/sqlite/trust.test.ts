import { expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";

import { DatabaseError } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { openPlants } from "../../../src/database/sqlite/pages.ts";
import { sqliteAdapter } from "../../../src/database/sqlite/sqlite_adapter.ts";
import { addPlants } from "../../support/add_plants.ts";
import { openWorker } from "../../support/database_fixture.ts";
import { skipped } from "../../support/missing.ts";
import { KILL, runApart } from "../../support/other_process.ts";
import { fern } from "../../support/plants.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = fern();
const ACCESSES = ["create", "write", "read"] as const;

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
    addPlants(client)([fern({ [TEXT]: "Weed" })]);
    client.run("PRAGMA journal_mode = DELETE");
    client.run("PRAGMA cache_size = 1");
    client.run("BEGIN");
    for (let id = 2; id < 100; id++) client.run(insertOf(fern({ id, [TEXT]: "x".repeat(4_000) })));`;

  runApart(script + KILL, attacker.at("weeds.db"));
  writeFileSync(file, readFileSync(attacker.at("weeds.db-journal")));
}

/** A marker as the program writes it. */
function forgeMarker(file: string): void {
  writeFileSync(file, JSON.stringify({ finding: "forged", foundAt: "" }));
}

const makePipe = (file: string) => void Bun.spawnSync(["mkfifo", file]);
const makeEndless = (file: string) => symlinkSync("/dev/zero", file);
const makeEmpty = (file: string) => writeFileSync(file, "");

const NOT_REGULAR = "is not a regular file: find out who put it there, and move it away";
const NOT_OURS =
  "belongs to uid 65534, and the database to uid 0; it may hold the newest plants: never move or delete it; if it is yours, give it to the owner of the database: chown -h 0 DATABASE-*";

const ATTACKS: [what: string, suffix: string, attack: (file: string) => void, says: string][] = [
  ["a journal", "-journal", plantJournal, NOT_OURS],
  ["a pipe as journal", "-journal", makePipe, NOT_REGULAR],
  ["an empty WAL", "-wal", makeEmpty, NOT_OURS],
  ["a link as WAL", "-wal", (file) => symlinkSync("plants.db", file), NOT_REGULAR],
  ["an empty index of the WAL", "-shm", makeEmpty, NOT_OURS],
  ["a forged marker", "-corrupt", forgeMarker, NOT_OURS],
  ["a pipe as marker", "-corrupt", makePipe, NOT_REGULAR],
  ["an endless marker", "-corrupt", makeEndless, NOT_REGULAR],
  ["a marker of a failed fsync", "-unsynced", makeEmpty, NOT_OURS],
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
    await using database = await openWorker(directory.database);
    const file = directory.database + suffix;

    attack(file);
    if (attack === forgeMarker) chownSync(file, OTHER_USER, OTHER_USER);

    expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["present"]);

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
          `Cannot open database "${path}": other users can write to its directory, and so replace it: chmod o-w ${directory.path}, or use another directory`,
        ),
      );
  }

  // Reading changes nothing that they could not change.
  connect(path, { access: "read" }).close();
});

test("connect() for writing in a directory that all can write to creates no file", () => {
  using directory = emptyDirectory();
  chmodSync(directory.path, 0o777);
  expect(() => connect(directory.at("plants.db"))).toThrow(
    `other users can write to its directory, and so replace it: chmod o-w ${directory.path}, or make a directory in it: mkdir -m 700 ${directory.at("db")}`,
  );
  expect(readdirSync(directory.path)).toEqual([]);
});

test.each([
  ["only its owner can write to", 0o700, false],
  ["all can write to, but only replace their own files", 0o1777, false],
  ["all can write to", 0o777, true],
])("backup into, and restore from, a directory that %s (%o)", async (_who, mode, isRefused) => {
  using own = emptyDirectory();
  using directory = emptyDirectory();
  connect(own.at("plants.db")).close();
  const adapter = sqliteAdapter(own.at("plants.db"));
  const options = { stop: new AbortController().signal };
  const says = `other users can write to its directory, and so replace it: chmod o-w ${directory.path}, or`;

  const saved = directory.at("saved.db");
  const linked = own.at("linked.db");
  symlinkSync(saved, linked);
  // Others may lead a link of theirs to whatever they like.
  const link = directory.at("link.db");
  await adapter.backup(own.at("kept.db"), options);
  symlinkSync(own.at("kept.db"), link);

  chmodSync(directory.path, mode);
  if (!isRefused) {
    expect(await adapter.backup(saved, options)).toBe(0);
    for (const source of [saved, linked, link])
      expect(await adapter.restore(source, options)).toMatchObject({ plants: 0 });
    return;
  }

  await expect(adapter.backup(saved, options)).rejects.toThrow(
    `Cannot back up to "${saved}": ${says} make a directory in it: mkdir -m 700 ${directory.at("db")}`,
  );
  expect(readdirSync(directory.path)).toEqual(["link.db"]);
  copyFileSync(own.at("kept.db"), saved);
  for (const source of [saved, linked, link])
    await expect(adapter.restore(source, options)).rejects.toThrow(
      `Cannot restore database "${source}": ${says} use another directory`,
    );
  expect(readdirSync(own.path).filter((name) => name.includes("replac"))).toEqual([]);
});

test("what connect() says can be pasted into a shell, whatever the path has in it", () => {
  using directory = emptyDirectory();
  const shared = directory.at(`it's "$(touch ran)" \`touch ran\` *`);
  mkdirSync(shared);
  chmodSync(shared, 0o777);
  const says = runApart(CONNECT, join(shared, "plants.db"), "create");
  const [, close, make] = /: (chmod .+), or make a directory in it: (mkdir .+)$/.exec(says) ?? [];

  for (const command of [close, make])
    expect(
      Bun.spawnSync(["sh", "-c", String(command)], { cwd: directory.path }),
      command,
    ).toMatchObject({ exitCode: 0, stderr: Buffer.of() });

  expect(readdirSync(directory.path)).toEqual([basename(shared)]);
  expect(readdirSync(shared)).toEqual(["db"]);
  connect(join(shared, "db", "plants.db")).close();
  connect(join(shared, "plants.db")).close();
});
