import { expect, setDefaultTimeout, test } from "bun:test";
import { renameSync, rmSync, statSync, symlinkSync } from "node:fs";

import { DatabaseError } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/sqlite_database.ts";
import { fern } from "../../support/plants.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = fern();

const LOSSES: [what: string, lose: (at: (name: string) => string) => void][] = [
  ["a link that is led to another file", (at) => renameSync(at("other-link.db"), at("link.db"))],
  // SQLite puts the WAL beside the file, not beside the link.
  ["a WAL that is removed from beside a linked file", (at) => rmSync(at("real.db-wal"))],
  [
    "a file that is moved, with a link to it in its place",
    (at) => {
      renameSync(at("real.db"), at("moved.db"));
      symlinkSync("moved.db", at("real.db"));
    },
  ],
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

test("a WAL is moved out of the way of a new file that another process has open for a moment", async () => {
  using directory = emptyDirectory();
  const [path, other] = [directory.at("plants.db"), directory.at("other.db")];
  for (const name of [path, other]) connect(name).close();

  let attempts = 0;
  const saving = {
    onSaving() {},
    lock() {
      if (++attempts < 3) throw new DatabaseError("another process has it open");
      return new DisposableStack();
    },
  };
  await using database = sqliteDatabase(connect(path), { saving });
  const add = () => database.plants.add([FERN], { timeoutMs: 1_000 });
  expect(await add()).toEqual(["added"]);

  renameSync(other, path);
  await expect(add()).rejects.toMatchObject({ code: "storage_unavailable" });
  // A new process would apply it to the new file.
  expect(statSync(`${path}-wal`).size).toBe(0);
});

test("a removed WAL is copied at once if another process has the file open", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  connect(path).close();

  let attempts = 0;
  const saving = {
    onSaving() {},
    lock() {
      // That process may end, after it has written to a WAL of its own.
      if (++attempts === 1) throw new DatabaseError("another process has it open");
      return new DisposableStack();
    },
  };
  await using database = sqliteDatabase(connect(path), { saving });
  const add = () => database.plants.add([FERN], { timeoutMs: 1_000 });
  expect(await add()).toEqual(["added"]);

  rmSync(`${path}-wal`);
  const error = await add().catch((refusal: unknown) => refusal);
  expect(String((error as Error).cause)).toContain("all of it is saved in");
});

test("a WAL is moved without SQLite's own wait for readers, which a stop would repeat", async () => {
  using directory = emptyDirectory();
  const [path, other] = [directory.at("plants.db"), directory.at("other.db")];
  for (const name of [path, other]) connect(name).close();

  const client = connect(path);
  let waitMs: unknown;
  const saving = {
    onSaving() {},
    lock() {
      waitMs = Number(client.query("PRAGMA busy_timeout").values()[0]?.[0]);
      return new DisposableStack();
    },
  };
  const database = sqliteDatabase(client, { saving });
  // A server reads it every second, and waits for locks then.
  await database.tokens.revision();

  renameSync(other, path);
  await expect(database[Symbol.asyncDispose]()).rejects.toMatchObject({
    code: "storage_unavailable",
  });
  expect(waitMs).toBe(0);
});
