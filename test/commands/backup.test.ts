import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";

import { Glob } from "bun";

import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { corruptionMarker } from "../../src/database/sqlite/markers.ts";
import { APPLICATION_ID } from "../../src/database/sqlite/migrations.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { addPlants } from "../support/add_plants.ts";
import { TOKEN } from "../support/client.ts";
import { damage, largeDatabase } from "../support/damage.ts";
import { databaseFixture, filesIn, HOSTILE_PLANTS } from "../support/database_fixture.ts";
import { INTACT, makeLedger } from "../support/ledger.ts";
import { startLoad } from "../support/load.ts";
import { fern, TEXT } from "../support/plants.ts";
import {
  emptyDirectory,
  runToEnd,
  start,
  startServer,
  TEST_TIMEOUT_MS,
  USER,
} from "../support/program.ts";
import { shell } from "../support/shell.ts";
import { exported, runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

function backup(path: string, target: string, stop = new AbortController().signal) {
  return runCommand(["backup", target], { DATABASE_URL: path }, { stop });
}

const DONE = { exitCode: 0, stdout: "" };

/** The end of a backup that fails with this line, or with one that begins so. */
function failure(line: string) {
  return {
    exitCode: 1,
    stdout: "",
    stderr: expect.stringMatching(new RegExp(`^${RegExp.escape(line)}[^\n]*\n$`)),
  };
}

test.each([
  ...["", "-", "new/", "new/.", ".."].map((target) => [target, "expected a file"]),
  ["missing/deep/backup.db", "no such file or directory"],
])("backup to %p fails with one clear line: %s", async (target, says) => {
  using database = await databaseFixture([]);
  expect(await backup(database.path, target)).toEqual(
    failure(`Cannot back up to "${target}": ${says}`),
  );
  expect(filesIn(database.directory)).toEqual(["plants.db"]);
});

test("backup copies every table into one sound file, and says so", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  const target = database.at("backup.db");
  {
    using client = connect(database.path);
    client.run(
      "INSERT INTO tokens (name, digest, created_at) VALUES ('gardener', zeroblob(32), 1)",
    );
  }

  const run = await backup(database.path, target);
  const kilobytes = Math.ceil(statSync(target).size / 1e3);
  expect(run).toEqual({
    ...DONE,
    stderr: `Backed up "${database.path}" to "${target}": ${HOSTILE_PLANTS.length} plants, ${kilobytes} kB\n`,
  });
  expect(filesIn(database.directory)).toEqual(["backup.db", "plants.db"]);

  using copy = new Database(target, { readonly: true });
  expect(copy.query("PRAGMA integrity_check").values()).toEqual([["ok"]]);
  expect(copy.query("PRAGMA application_id").values()).toEqual([[APPLICATION_ID]]);
  expect(await exported(target)).toBe(await exported(database.path));

  const contentOf = (path: string) => {
    using client = new Database(path, { readonly: true });
    const schema = client.query("SELECT name, sql FROM sqlite_schema ORDER BY name").values();
    return { schema, tokens: client.query("SELECT * FROM tokens").values() };
  };

  expect(contentOf(target)).toEqual(contentOf(database.path));
  expect(contentOf(target).tokens).toHaveLength(1);
});

test("a backup is readable by the users who can read the database", async () => {
  using database = await databaseFixture([]);
  for (const mode of [0o600, 0o640]) {
    const target = database.at(`backup-${mode}.db`);
    chmodSync(database.path, mode);
    await backup(database.path, target);
    expect(statSync(target).mode & 0o777).toBe(mode);
  }
});

test("a backup taken under load holds every plant acknowledged before it began", async () => {
  using directory = emptyDirectory();
  let id = 0n;
  let hasBegun = false;
  let isOver = false;
  const ledger = makeLedger();
  const acknowledge = (plant: NewPlant) => (hasBegun ? undefined : ledger.acknowledge(plant));

  {
    await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
    const next = () =>
      isOver
        ? undefined
        : fern({ id: BigInt.asIntN(64, id++ * 0x9e3779b97f4a7c15n), [TEXT]: `plant ${id}` });
    const load = startLoad({
      url: server.url,
      connections: 8,
      ledger: { ...ledger, acknowledge },
      next,
    });
    while (load.answered() < 500) await Bun.sleep(5);
    hasBegun = true;
    const run = await runToEnd({ args: ["backup", "backup.db"], cwd: directory.path });
    expect(run).toEqual({
      exitCode: 0,
      stdout: "",
      stderr: expect.stringMatching(
        /^Backed up "plants.db" to "backup.db": [\d,]+ plants, \d+ kB\n$/,
      ),
    });
    const during = load.answered();
    isOver = true;
    const { responses, unanswered } = await load.end;
    expect({ kinds: Object.keys(responses), unanswered }).toEqual({
      kinds: ["200"],
      unanswered: 0,
    });
    expect(during).toBeGreaterThan(ledger.acknowledgements());
  }

  expect(ledger.acknowledgements()).toBeGreaterThanOrEqual(500);
  expect(ledger.judge(directory.at("backup.db"))).toEqual(INTACT);
});

const precious = (path: string) => writeFileSync(path, "precious");

test.each([
  ["a file", "", precious],
  ["a link that leads nowhere", "", (path: string) => symlinkSync("nowhere", path)],
  ["a WAL that it would have", "-wal", precious],
  ["a journal that it would have", "-journal", precious],
])("backup replaces nothing, and takes nothing over: not %s", async (_what, suffix, make) => {
  using database = await databaseFixture([]);
  const target = database.at("target");
  make(target + suffix);
  const { ino, size } = lstatSync(target + suffix);
  const files = filesIn(database.directory);
  const beside = `"${target}${suffix}" of an earlier database is beside it, and may hold plants: choose another file`;
  const says = suffix === "" ? "file already exists" : beside;

  expect(await backup(database.path, target)).toEqual(
    failure(`Cannot back up to "${target}": ${says}`),
  );
  expect(filesIn(database.directory)).toEqual(files);
  expect(lstatSync(target + suffix)).toMatchObject({ ino, size });
});

test("backup beside an empty WAL, which holds no plant, succeeds", async () => {
  using database = await databaseFixture([]);
  writeFileSync(database.at("backup.db-wal"), "");
  expect(await backup(database.path, database.at("backup.db"))).toMatchObject(DONE);
});

/** Fills a database with some tens of megabytes: copying it takes a moment. */
function fill(path: string): void {
  using client = connect(path);
  const text = () => crypto.getRandomValues(new Uint8Array(400)).toHex();
  addPlants(client)(Array.from({ length: 20_000 }, (_, id) => fern({ id, [TEXT]: text() })));
}

test("backup of what is not a database fails with one clear line, and leaves nothing", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  writeFileSync(path, "This is no database.".repeat(100));
  const says = `Cannot open database "${path}": file is not a database`;
  expect(await backup(path, directory.at("backup.db"))).toEqual(failure(says));
  expect(filesIn(directory.path)).toEqual(["plants.db"]);
});

const MARKED = `it is corrupt (found before); to check it, run as ${USER}: plant-store check --database `;

test.each([
  [
    "that its target comes while it works",
    (_path: string, target: string) => writeFileSync(target, "precious"),
    (_path: string, target: string) => `Cannot back up to "${target}": file already exists`,
    ["backup.db", "plants.db"],
  ],
  [
    // Its copy could be sound, and lack plants.
    "that its source is marked as corrupt in the meantime",
    (path: string) => corruptionMarker(path).write("found before"),
    (path: string) => `Cannot copy database "${path}": ${MARKED}${path}`,
    ["plants.db", "plants.db-corrupt"],
  ],
])("backup notices %s, and leaves nothing", async (_what, happen, says, files) => {
  using database = await databaseFixture([]);
  fill(database.path);
  const target = database.at("backup.db");
  const run = backup(database.path, target);

  const hasDraft = () => readdirSync(database.directory).some((name) => name.startsWith("."));
  while (!hasDraft() && Bun.peek.status(run) === "pending") await Bun.sleep(1);
  happen(database.path, target);
  expect(await run).toEqual(failure(says(database.path, target)));
  expect(filesIn(database.directory)).toEqual(files);

  if (existsSync(target)) expect(readFileSync(target, "utf8")).toBe("precious");
});

test("backup onto a full disk fails with one clear line, and leaves nothing", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  // No file may grow beyond this, as if the disk was full; without the trap that would be a signal.
  const program = shell('trap "" XFSZ; ulimit -f 100; exec "$@" backup backup.db');
  expect(await runToEnd({ program, cwd: database.directory })).toEqual({
    exitCode: 1,
    stdout: "",
    stderr: 'Cannot copy database "plants.db": disk I/O error\n',
  });
  expect(filesIn(database.directory)).toEqual(["plants.db"]);
});

test("backup that is stopped leaves nothing, and says so", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  const stop = new AbortController();
  const run = backup(database.path, database.at("backup.db"), stop.signal);
  stop.abort();
  expect(await run).toEqual(failure("Stopped: no backup was made"));
  expect(filesIn(database.directory)).toEqual(["plants.db"]);
});

/**
 * Starts a backup, and sends it a signal while its draft is there. Where that was too late, starts
 * another one.
 */
async function interruptedBackup(directory: string, signal: "SIGKILL" | "SIGSTOP") {
  const drafts = () =>
    Array.from(new Glob(".plant-store-backup-*/plants.db").scanSync({ cwd: directory, dot: true }));
  const before = new Set(drafts());

  for (let tries = 1; ; tries++) {
    await using stack = new AsyncDisposableStack();
    const name = `${signal}${tries}.db`;
    const program = stack.use(start({ args: ["backup", name], cwd: directory }));
    const isNew = (draft: string) => !before.has(draft);
    while (!drafts().some(isNew) && program.child.exitCode === null) await Bun.sleep(1);
    program.child.kill(signal);
    if (signal === "SIGKILL") await program.child.exited;

    const draft = drafts().find(isNew);
    if (draft === undefined) continue;
    const kept = stack.move();
    return {
      name,
      child: program.child,
      draft: join(directory, draft),
      [Symbol.asyncDispose]: () => kept.disposeAsync(),
    };
  }
}

test("backup removes at once what a killed backup left, and nothing of one that is alive, however slow it is", async () => {
  using database = await databaseFixture([]);
  fill(database.path);
  await using slow = await interruptedBackup(database.directory, "SIGSTOP");
  for (const path of [slow.draft, dirname(slow.draft)]) utimesSync(path, 0, 0);
  await using dead = await interruptedBackup(database.directory, "SIGKILL");

  expect(await backup(database.path, database.at("backup.db"))).toMatchObject(DONE);
  expect([existsSync(dead.draft), existsSync(slow.draft)]).toEqual([false, true]);

  slow.child.kill("SIGCONT");
  expect(await slow.child.exited).toBe(0);
  expect(existsSync(database.at(slow.name))).toBe(true);
  expect(existsSync(dirname(slow.draft))).toBe(false);
});

test("backup removes nothing that only has the name of a killed backup's directory", async () => {
  using database = await databaseFixture([]);
  const { at } = database;
  const names = [
    ".plant-store-backup-file",
    ".plant-store-backup-link",
    ".plant-store-backup-other",
    "elsewhere",
  ];

  writeFileSync(at(".plant-store-backup-file"), "precious");
  for (const name of ["elsewhere", ".plant-store-backup-other"]) mkdirSync(at(name));
  writeFileSync(at("elsewhere/plants.db"), "precious");
  writeFileSync(at(".plant-store-backup-other/letter.txt"), "precious");
  symlinkSync("elsewhere", at(".plant-store-backup-link"));

  expect(await backup(database.path, at("backup.db"))).toMatchObject(DONE);
  expect(filesIn(database.directory)).toEqual([...names, "backup.db", "plants.db"].toSorted());
  expect(readFileSync(at("elsewhere/plants.db"), "utf8")).toBe("precious");
  expect(readdirSync(at(".plant-store-backup-other"))).toEqual(["letter.txt"]);
});

/** The names of the dated backups in a directory. */
const datedIn = (directory: string) =>
  readdirSync(directory)
    .filter((file) => /^plants-\d{4}-\d\d-\d\dT\d{6}Z\.db$/.test(file))
    .toSorted();

test("backup --keep writes a dated file, and then deletes the oldest dated ones but so many", async () => {
  using database = await databaseFixture([fern()]);
  using backups = emptyDirectory();
  const others = ["plants.db", "plants-2020.db", "notes.txt"];
  const dated = ["plants-2026-01-01T000000Z.db", "plants-2026-01-02T000000Z.db"];
  for (const file of [...others, ...dated]) writeFileSync(backups.at(file), "");

  const run = await runCommand(["backup", "--keep", "2", "--json", backups.path], {
    DATABASE_URL: database.path,
  });
  const { file, ...result } = JSON.parse(run.stdout) as { file: string };
  expect(result).toMatchObject({ database: database.path, plants: 1, deleted: [dated[0]] });
  expect(datedIn(backups.path)).toEqual([dated[1] ?? "", basename(file)]);
  expect(readdirSync(backups.path)).toEqual(expect.arrayContaining(others));
  expect(await exported(file)).toBe(await exported(database.path));
});

test("backup --keep deletes nothing while a backup is dated later than the new one", async () => {
  using database = await databaseFixture([fern()]);
  using backups = emptyDirectory();
  const later = "plants-2999-01-01T000000Z.db";
  for (const file of ["plants-2026-01-01T000000Z.db", later]) writeFileSync(backups.at(file), "");

  const { exitCode, stderr } = await runCommand(["backup", "--keep", "1", backups.path], {
    DATABASE_URL: database.path,
  });
  expect(exitCode).toBe(0);
  expect(stderr).toMatch(
    /^Kept all old backups: "plants-2999-01-01T000000Z.db" is dated later than "plants-.*Z.db"; check the clock\n/,
  );
  expect(datedIn(backups.path)).toHaveLength(3);
});

test("backup --keep deletes nothing if the backup fails", async () => {
  using backups = emptyDirectory();
  using database = largeDatabase(30_000);
  const old = "plants-2026-01-01T000000Z.db";
  writeFileSync(backups.at(old), "");
  // What VACUUM copies as it is: only the check of the copy finds it.
  damage(database.database, "a name that is a blob");

  const { exitCode, stderr } = await runCommand(["backup", "--keep", "1", backups.path], {
    DATABASE_URL: database.database,
  });
  expect(exitCode).toBe(1);
  expect(stderr).toMatch(/^Cannot back up to ".*": the copy is corrupt: .*\n$/);
  expect(readdirSync(backups.path)).toEqual([old]);
});

test("of two backups with --keep at once, each is kept whole, or refused by its name", async () => {
  using database = await databaseFixture([fern()]);
  using backups = emptyDirectory();
  const both = [1, 2].map(() =>
    runToEnd({ args: ["backup", "--keep", "2", backups.path, "--database", database.path] }),
  );
  const ends = await Promise.all(both);

  expect(ends.some(({ exitCode }) => exitCode === 0)).toBe(true);
  for (const { exitCode, stderr } of ends)
    if (exitCode !== 0) expect(stderr).toContain("file already exists");
  for (const file of datedIn(backups.path))
    expect(await exported(backups.at(file))).toBe(await exported(database.path));
  expect(datedIn(backups.path).length).toBeGreaterThan(0);
});

test.each([
  ["0", "0: expected 1 to 999999"],
  ["1.5", "1.5: expected an integer from 1 to 999999"],
  ["", '"": expected an integer from 1 to 999999'],
])("backup --keep %p is a usage error", async (keep, says) => {
  using database = await databaseFixture([]);
  using backups = emptyDirectory();
  const run = await runCommand(["backup", `--keep=${keep}`, backups.path], {
    DATABASE_URL: database.path,
  });
  expect(run).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: `Cannot use --keep ${says}\n`,
  });
  expect(readdirSync(backups.path)).toEqual([]);
});

test("backup --keep to a file, or to an empty path, is refused", async () => {
  using database = await databaseFixture([]);
  for (const target of [database.path, ""])
    expect(
      await runCommand(["backup", "--keep", "1", target], { DATABASE_URL: database.path }),
    ).toEqual(failure(`Cannot back up to "${target}": expected a directory`));
});

test("backup --keep that cannot delete an old one says that the new one is there", async () => {
  using database = await databaseFixture([fern()]);
  using backups = emptyDirectory();
  const old = "plants-2026-01-01T000000Z.db";
  mkdirSync(backups.at(old));

  const { exitCode, stderr } = await runCommand(["backup", "--keep", "1", backups.path], {
    DATABASE_URL: database.path,
  });
  expect(exitCode).toBe(1);
  expect(stderr).toMatch(/^Backed up to ".*Z.db", but cannot delete ".*-01-01T000000Z.db": .*\n$/);
  expect(datedIn(backups.path)).toHaveLength(2);
});

test("migrate, token create, restore and backup make the last directory, for their user alone", async () => {
  using database = await databaseFixture([fern()]);
  // As some volumes of containers are.
  using volume = emptyDirectory();
  chmodSync(volume.path, 0o777);
  using _ = withUmask(0);

  const saved = volume.at("saved");
  for (const [name, ...args] of [
    ["migrated", "migrate", "--database", volume.at("migrated/plants.db")],
    ["created", "token", "create", "greenhouse", "--database", volume.at("created/plants.db")],
    ["saved", "backup", "--keep", "14", saved, "--database", database.path],
  ] as const) {
    expect(await runCommand(args, {})).toMatchObject({ exitCode: 0 });
    expect(statSync(volume.at(name)).mode & 0o777).toBe(0o700);
  }

  const [file = ""] = datedIn(saved);
  const restored = volume.at("restored/plants.db");
  const run = await runCommand(["restore", join(saved, file), "--database", restored], {});
  expect(run).toMatchObject({ exitCode: 0 });
  expect(await exported(restored)).toBe(await exported(database.path));
  expect(statSync(volume.at("restored")).mode & 0o777).toBe(0o700);
});

/** Lets files be made with the modes that they are asked for. */
function withUmask(mask: number): Disposable {
  const before = process.umask(mask);
  return { [Symbol.dispose]: () => void process.umask(before) };
}

test("migrate makes no directory but the last, nor does a server or a check", async () => {
  using here = emptyDirectory();
  for (const [name, args] of [
    ["deep/data/plants.db", ["migrate"]],
    ["data/plants.db", ["serve", "--check"]],
    ["data/plants.db", ["serve", "--port", "0"]],
  ] as const) {
    const run = await runCommand([...args, "--database", here.at(name)], {});
    expect(run.stderr).toContain("there is no such directory");
    expect(readdirSync(here.path)).toEqual([]);
  }
});
