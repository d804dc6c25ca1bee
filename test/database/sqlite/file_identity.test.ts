import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";

import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { sqliteDatabase } from "../../../src/database/sqlite/sqlite_database.ts";
import { skipped } from "../../support/missing.ts";
import { PRELUDE } from "../../support/other_process.ts";
import { fern } from "../../support/plants.ts";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../../support/program.ts";

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
        console.log(String(await database.plants.add([fern({ id })], { timeoutMs: 1_000 })));
      database.reportCorruption("a page is gone");`);
    expect(adding).toBe("added\nadded");

    // Changes the ctime, which takes the place of the time of birth then.
    chmodSync(path, 0o640);
    expect(run("try { connect(path); } catch ({ message }) { console.log(message); }")).toContain(
      "it is corrupt (a page is gone)",
    );
  },
);
