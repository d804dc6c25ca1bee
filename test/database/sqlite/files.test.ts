import { expect, setDefaultTimeout, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";

import { DatabaseError } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { addPlants } from "../../support/add_plants.ts";
import { KILL, killed, runApart } from "../../support/other_process.ts";
import { fern } from "../../support/plants.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = fern();
const ACCESSES = ["create", "write", "read"] as const;

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
