import { expect, setDefaultTimeout, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";

import { DatabaseError } from "../../../src/database/database.ts";
import { connect } from "../../../src/database/sqlite/bun_driver.ts";
import { sqliteAdapter } from "../../../src/database/sqlite/sqlite_adapter.ts";
import { killed } from "../../support/other_process.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const ACCESSES = ["create", "write", "read"] as const;

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

  const check = sqliteAdapter(path).check({ stop: new AbortController().signal });
  await expect(check).rejects.toThrow(new DatabaseError(`Cannot open database "${path}": ${says}`));
  expect(existsSync(directory.at("none.db"))).toBe(false);
});
