// What `plant-store/sqlite` promises, for the test runner of each runtime. `package.test.ts` puts the
// package in the place of the source.
import assert from "node:assert/strict";
import {
  chmodSync,
  chownSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";

import { plantStoreContract } from "../../src/database/contract/mod.ts";
import { type SqliteStore, sqliteStore } from "../../src/database/sqlite/mod.ts";
import { fern, ivy, moss, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";

const directory = mkdtempSync(join(tmpdir(), "plant-store-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));

const FERN = fern();
const MOSS = moss({ id: 2n, [OPTIONAL_TEXT]: "indoor" });
const UNAVAILABLE = { name: "PlantStoreError", code: "storage_unavailable" };

let files = 0;
const newPath = () => join(directory, `${++files}.db`);

/** Adds a batch, with a long timeout: a busy machine breaks nothing. */
function add(store: SqliteStore, ...plants: Parameters<SqliteStore["add"]>[0]) {
  return store.add(plants, { timeoutMs: 60_000 });
}

let path = "";

function open() {
  path = newPath();
  return reopen();
}

async function reopen() {
  const plants = await sqliteStore(path);
  const reader = new DatabaseSync(path);
  return {
    plants,
    read: async (id: bigint) => reader.prepare("SELECT * FROM plants WHERE id = ?").get(id),
    async [Symbol.asyncDispose]() {
      reader.close();
      plants.close();
    },
  };
}

for (const { name, run } of plantStoreContract(open, reopen)) test(name, run);

test("sqliteStore() finds what was stored before, and leaves one file that only its owner may read", async () => {
  const path = newPath();
  const before = await sqliteStore(path);
  assert.deepEqual(await add(before, FERN, MOSS), ["added", "added"]);
  before.close();
  assert.deepEqual([existsSync(`${path}-wal`), existsSync(`${path}-shm`)], [false, false]);
  assert.equal(statSync(path).mode & 0o777, 0o600);

  const after = await sqliteStore(path);
  assert.deepEqual(await add(after, FERN, { ...MOSS, [OPTIONAL_TEXT]: "outdoor" }), [
    "present",
    "conflict",
  ]);
  await after[Symbol.asyncDispose]();
  assert.equal(existsSync(`${path}-wal`), false);
  await assert.rejects(add(after, FERN), UNAVAILABLE);
});

test("sqliteStore() creates a database with a line on the console, and with `create: false` none", async () => {
  const path = newPath();
  const missing = `Cannot open database "${path}": there is no such file: mount its disk, `;
  await assert.rejects(sqliteStore(path, { create: false }), ({ message }: Error) =>
    message.startsWith(missing),
  );
  assert.equal(existsSync(path), false);

  const { warn } = console;
  const lines: unknown[][] = [];
  console.warn = (...line) => void lines.push(line);
  try {
    (await sqliteStore(path)).close();
    (await sqliteStore(path, { create: false })).close();
  } finally {
    console.warn = warn;
  }
  assert.deepEqual(lines, [[`Created an empty database: ${path}`]]);

  const wrong = { create: "no" as unknown as boolean };
  await assert.rejects(sqliteStore(path, wrong), {
    name: "TypeError",
    message: "Cannot use `create` no: expected true or false",
  });
  const misspelled = { creates: false } as object;
  await assert.rejects(sqliteStore(newPath(), misspelled), {
    name: "TypeError",
    message: "Cannot use `creates`: there is no such option",
  });
});

test("sqliteStore() opens a file to which a newer version has only added, and says what it leaves out", async () => {
  const path = newPath();
  (await sqliteStore(path)).close();
  const newer = new DatabaseSync(path);
  newer.exec("ALTER TABLE plants ADD later text");
  newer.exec(
    "INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('1f adds plants.later', 9e12)",
  );
  newer.close();

  const { warn } = console;
  const lines: unknown[][] = [];
  console.warn = (...line) => void lines.push(line);
  try {
    const store = await sqliteStore(path);
    assert.deepEqual(await add(store, FERN), ["added"]);
    store.close();
  } finally {
    console.warn = warn;
  }
  assert.deepEqual(lines, [
    ["The database has additions of a newer plant-store, which this version ignores: plants.later"],
  ]);
});

test("sqliteStore() opens a copy that is in no WAL mode, and stores its first plant", async () => {
  const path = newPath();
  const store = await sqliteStore(path);
  await add(store, FERN);
  store.close();

  const copy = new DatabaseSync(path);
  copy.exec("PRAGMA journal_mode = DELETE");
  copy.close();

  const opened = await sqliteStore(path);
  assert.deepEqual(await add(opened, MOSS, FERN), ["added", "present"]);
  opened.close();
});

test("add() stores nothing of a batch that has no plant in it, and goes on", async () => {
  const store = await sqliteStore(newPath());
  const broken = fern({ id: 3n, [TEXT]: Symbol("Ivy") as unknown as string });

  // A bug of the caller, and no state of the storage: the client gets 500.
  await assert.rejects(
    add(store, FERN, broken),
    (error: Error) => error.name !== "PlantStoreError",
  );
  assert.deepEqual(await add(store, FERN), ["added"]);
  store.close();
});

test("add() without a time is refused at once, even while another process holds the lock", async () => {
  const path = newPath();
  const store = await sqliteStore(path);
  const holder = new DatabaseSync(path);
  holder.exec("BEGIN IMMEDIATE");

  for (const timeoutMs of [Number.NaN, undefined, Infinity, -1, 2 ** 31, "5"])
    await assert.rejects(store.add([FERN], { timeoutMs: timeoutMs as number }), {
      name: "TypeError",
      message: /^Cannot use `timeoutMs` .*: expected 0 to 2147483647$/,
    });
  await assert.rejects(store.add([FERN], undefined as never), TypeError);
  await assert.rejects(store.add([FERN], { timeoutMs: 0 }), UNAVAILABLE);

  holder.exec("ROLLBACK");
  holder.close();
  assert.deepEqual(await store.add([FERN], { timeoutMs: 0 }), ["added"]);
  store.close();
});

/** Marks a database as corrupt. */
function mark(path: string): void {
  writeFileSync(`${path}-corrupt`, JSON.stringify({ version: 1, finding: "a page is gone" }));
}

test("sqliteStore() takes the paths that the executable takes, and says what it expects of others", async () => {
  const path = newPath();
  const store = await sqliteStore(`file:${path}`);
  await add(store, FERN);
  store.close();
  assert(existsSync(path));

  for (const [wrong, message] of [
    [
      ":memory:",
      /^sqliteStore\(\) keeps plants in a file, not in ":memory:": use memoryStore\(\)$/,
    ],
    ["file::memory:", /use memoryStore\(\)$/],
    [undefined, /^sqliteStore\(\) expects a path as a string, not undefined$/],
    [new URL("file:///tmp/plants.db"), /not file:\/\/\/tmp\/plants.db$/],
    ["", /^sqliteStore\(\) expects a path or file:PATH, not ""$/],
    ["postgres://host/plants", /^sqliteStore\(\) expects a path or file:PATH, not "postgres/],
    ["file://host/plants.db", /expects a path or file:PATH/],
  ] as const)
    await assert.rejects(sqliteStore(wrong as string), { name: "TypeError", message });
});

test("sqliteStore() refuses what is no database of its own, in a line that names it, and leaves it as it was", async () => {
  const foreign = newPath();
  const database = new DatabaseSync(foreign);
  database.exec("CREATE TABLE notes (note TEXT)");
  database.close();

  const text = newPath();
  writeFileSync(text, "Fern, Moss and Ivy. ".repeat(100));

  const newer = newPath();
  (await sqliteStore(newer)).close();
  const later = new DatabaseSync(newer);
  later.exec("INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('', 9000000000000)");
  later.close();

  const marked = newPath();
  (await sqliteStore(marked)).close();
  mark(marked);

  const missing = newPath();
  writeFileSync(missing, "");
  writeFileSync(`${missing}-wal`, "plants");

  for (const [path, reason] of [
    [foreign, "it belongs to another application"],
    [text, "file is not a database"],
    [newer, "it was made by a newer plant-store"],
    [
      marked,
      /^it is corrupt \(a page is gone\); restore a backup, or run .*plant-store check --database /,
    ],
    [directory, "it is not a file"],
    [join(directory, "missing", "plants.db"), "there is no such directory"],
    [missing, /-wal" holds plants of a file that is not there/],
  ] as const) {
    const before = existsSync(path) && path !== directory ? readFileSync(path) : undefined;
    await assert.rejects(sqliteStore(path), (error: Error) => {
      const prefix = `Cannot open database "${path}": `;
      assert.equal(error.message.slice(0, prefix.length), prefix);
      const rest = error.message.slice(prefix.length);
      if (typeof reason === "string") assert.equal(rest, reason);
      else assert.match(rest, reason);
      return true;
    });

    if (before !== undefined) assert.deepEqual(readFileSync(path), before);
  }

  assert.equal(readFileSync(`${missing}-wal`, "utf8"), "plants");
});

test("add() waits for the lock of another process without blocking the event loop", async () => {
  const path = newPath();
  const store = await sqliteStore(path);
  const other = new DatabaseSync(path);
  other.exec("BEGIN IMMEDIATE");

  const adding = add(store, FERN);
  // A store that blocked would not come here before its timeout.
  await new Promise((resolve) => setTimeout(resolve, 1));
  await assert.rejects(store.add([MOSS], { timeoutMs: 1 }), UNAVAILABLE);
  other.exec("ROLLBACK");

  assert.deepEqual(await adding, ["added"]);
  assert.deepEqual(await add(store, MOSS), ["added"]);
  other.close();
  store.close();
});

test("sqliteStore() waits for the lock of another process", async () => {
  const path = newPath();
  const other = new DatabaseSync(path);
  other.exec("BEGIN IMMEDIATE");
  const opening = sqliteStore(path);

  await new Promise((resolve) => setTimeout(resolve, 1));
  other.exec("ROLLBACK");
  other.close();

  const store = await opening;
  assert.deepEqual(await add(store, FERN), ["added"]);
  store.close();
});

test("a closed store refuses every call, and may be closed again", async () => {
  const store = await sqliteStore(newPath());
  store.close();
  store.close();
  await assert.rejects(add(store, FERN), UNAVAILABLE);
  await assert.rejects(store.probe(), UNAVAILABLE);
});

test("a store whose file was removed refuses plants until the file is back", async () => {
  const path = newPath();
  const store = await sqliteStore(path);
  await add(store, FERN);

  renameSync(path, `${path}-away`);
  await assert.rejects(add(store, MOSS), UNAVAILABLE);
  await assert.rejects(store.probe(), UNAVAILABLE);

  renameSync(`${path}-away`, path);
  assert.deepEqual(await add(store, FERN, MOSS), ["present", "added"]);
  store.close();
});

test("a store whose file was replaced, or whose WAL was removed, fails for good", async () => {
  const replace = (path: string) => {
    copyFileSync(path, `${path}-copy`);
    renameSync(`${path}-copy`, path);
  };
  // As a second build of SQLite in the program does.
  const removeWal = (path: string) => rmSync(`${path}-wal`);

  for (const lose of [replace, removeWal]) {
    const path = newPath();
    const before = await sqliteStore(path);
    await add(before, FERN);
    before.close();

    const store = await sqliteStore(path);
    await add(store, ivy({ id: 3n }));
    lose(path);
    await assert.rejects(add(store, MOSS), UNAVAILABLE);
    const failure = (await store.failed) as Error & { readonly cause: Error };
    assert.match(failure.cause.message, /was removed or replaced while it was open$/);
    await assert.rejects(store.probe(), UNAVAILABLE);
    store.close();

    // What was in a lost WAL is not moved over what others may have stored since.
    const reopened = await sqliteStore(path);
    const isKept = lose === replace;
    assert.deepEqual(await add(reopened, FERN, ivy({ id: 3n }), MOSS), [
      "present",
      isKept ? "present" : "added",
      "added",
    ]);
    reopened.close();
  }
});

test("a store whose program has read the database file fails for good, whichever descriptor is the lowest", async () => {
  // Deno asks for all permissions first, and only Linux shows a lock.
  if ("Deno" in globalThis || !existsSync("/proc/self/fdinfo")) return;

  for (const count of [0, 8]) {
    const path = newPath();
    // Those that are closed while the store opens are lower than the one that has the lock.
    const others = Array.from({ length: count }, () => openSync(".", "r"));
    const opening = sqliteStore(path);
    for (const other of others) closeSync(other);
    const store = await opening;
    assert.deepEqual(await add(store, FERN), ["added"]);
    readFileSync(path);
    await assert.rejects(add(store, MOSS), UNAVAILABLE);
    const failure = (await store.failed) as Error & { readonly cause: Error };
    assert.match(failure.cause.message, /^something else in this program opened and closed/);

    const reopened = await sqliteStore(path);
    assert.deepEqual(await add(reopened, FERN, MOSS), ["present", "added"]);
    reopened.close();
  }
});

const { MOUNTED_FILE, OTHER_USER, SMALL_DISK } = process.env;

/** Why a file is not opened, without its path; `undefined` if it is. */
async function refusalOf(path: string): Promise<string | undefined> {
  try {
    (await sqliteStore(path)).close();
    return undefined;
  } catch (error) {
    return (error as Error).message.replace(/^Cannot open database ".*?": /, "");
  }
}

/** Deno asks for all permissions before it tells who runs the program. */
const unlessDeno = (refusal: string) => ("Deno" in globalThis ? undefined : refusal);

test("sqliteStore() refuses a directory that others can write to, but not one of a group", async () => {
  const shared = join(directory, "shared");
  const path = join(shared, "plants.db");
  mkdirSync(shared);

  chmodSync(shared, 0o777);
  assert.equal(
    (await refusalOf(path))?.slice(0, 41),
    unlessDeno("other users can write to its directory, a"),
  );
  assert.equal(existsSync(path), "Deno" in globalThis);
  chmodSync(shared, 0o770);
  assert.equal(await refusalOf(path), undefined);
});

test("sqliteStore() refuses the file of another user, and what another user has put beside its own", async () => {
  // Giving files away needs root: whoever runs this says so.
  if (OTHER_USER === undefined) return;
  const give = (path: string) => chownSync(path, Number(OTHER_USER), Number(OTHER_USER));
  const path = newPath();
  (await sqliteStore(path)).close();

  writeFileSync(`${path}-journal`, "rolled back");
  give(`${path}-journal`);
  assert.match((await refusalOf(path)) ?? "", /-journal" beside it belongs to uid \d+, and the /);
  assert.equal(readFileSync(`${path}-journal`, "utf8"), "rolled back");
  rmSync(`${path}-journal`);

  give(path);
  assert.equal(
    (await refusalOf(path))?.replace(/;.*/, ""),
    unlessDeno(`it belongs to uid ${OTHER_USER}`),
  );
});

test("sqliteStore() refuses a file that is mounted without its directory", async () => {
  // Without the right to mount one, whoever runs this says so.
  if (MOUNTED_FILE === undefined) return;
  const refusal = "it is mounted without its directory, and its WAL would be lost";
  assert.equal((await refusalOf(MOUNTED_FILE))?.split(":")[0], unlessDeno(refusal));
});

test("a store goes on when another one of the program on the same file is closed", async () => {
  const path = newPath();
  const [one, other, third] = [
    await sqliteStore(path),
    await sqliteStore(path),
    await sqliteStore(path),
  ];
  one.close();
  assert.deepEqual(await add(third, FERN), ["added"]);
  other.close();
  assert.deepEqual(await add(third, MOSS), ["added"]);
  third.close();
});

test("sqliteStore() begins a new WAL after a failed fsync, but not while another process reads the old one", async () => {
  const path = newPath();
  const store = await sqliteStore(path);
  await add(store, FERN);
  const reader = new DatabaseSync(path);
  reader.exec("BEGIN; SELECT count(*) FROM plants");

  const reading = reader.prepare("SELECT id FROM plants").iterate();
  reading.next();
  await add(store, MOSS);

  writeFileSync(`${path}-unsynced`, "");
  await assert.rejects(
    sqliteStore(path),
    /an earlier fsync failed, and another process is reading the WAL/,
  );
  assert(existsSync(`${path}-unsynced`));

  reading.return?.();
  reader.close();
  store.close();
  const reopened = await sqliteStore(path);
  assert(!existsSync(`${path}-unsynced`));
  assert.deepEqual(await add(reopened, FERN, MOSS), ["present", "present"]);
  reopened.close();
});

test("a store that meets a corrupt page refuses every call from then on, and writes nothing more", async () => {
  const path = newPath();
  const before = await sqliteStore(path);
  const plants = Array.from({ length: 200 }, (_, id) => fern({ id, [TEXT]: "Fern".repeat(50) }));

  await add(before, ...plants);
  before.close();

  const bytes = readFileSync(path);
  // A leaf in the middle: opening reads the first and the last one.
  bytes.fill(0xff, bytes.length - 5 * 4_096, bytes.length - 4 * 4_096);
  writeFileSync(path, bytes);

  const store = await sqliteStore(path);
  await assert.rejects(add(store, ...plants), UNAVAILABLE);
  await store.failed;
  await assert.rejects(add(store, moss({ id: -1n })), UNAVAILABLE);
  assert.deepEqual(readFileSync(path), bytes);
  store.close();

  // Nor does the next one, which a supervisor starts.
  await assert.rejects(sqliteStore(path), /: it is corrupt \(.+\); restore a backup/);
  assert.deepEqual(readFileSync(path), bytes);
});

test("a full disk refuses plants, loses none, and takes them again once there is room", async () => {
  // Without the right to mount one there is no small disk: whoever runs this says so.
  if (SMALL_DISK === undefined) return;

  const path = join(SMALL_DISK, "plants.db");
  const filler = join(SMALL_DISK, "filler");
  const store = await sqliteStore(path);
  writeFileSync(filler, new Uint8Array(2 ** 20));

  const plantOf = (id: bigint) => fern({ id, [TEXT]: `${id}`.repeat(1_000) });
  let stored = 0n;

  const addAll = async () => {
    for (;;) {
      await add(store, plantOf(stored));
      stored++;
    }
  };

  await assert.rejects(addAll(), UNAVAILABLE);
  assert(stored > 0n);

  rmSync(filler);
  await store.probe();
  assert.deepEqual(await add(store, plantOf(stored)), ["added"]);
  store.close();

  const reopened = await sqliteStore(path);
  for (let id = 0n; id <= stored; id++)
    assert.deepEqual(await add(reopened, plantOf(id)), ["present"]);
  reopened.close();
});
