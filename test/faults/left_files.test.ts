import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, existsSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";

import { post, TOKEN } from "../support/client.ts";
import { type Damage, damage, largeDatabase } from "../support/damage.ts";
import { fern } from "../support/plants.ts";
import {
  emptyDirectory,
  exitCodeOf,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { readError } from "../support/responses.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import { stop } from "./health.ts";
import { onFreePort } from "./settle.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** The database and its WAL, as digests. */
function digests(database: string): readonly string[] {
  const digest = (path: string) =>
    new Bun.CryptoHasher("sha256").update(readFileSync(path)).digest("hex");
  return [database, `${database}-wal`].map(digest);
}

const home = () => largeDatabase(20_000);

/** Leaves plants in the WAL, and with them the last page of plants. */
async function killedServer({ options }: ReturnType<typeof home>): Promise<void> {
  await using server = await startServer(options);
  await storeSome(server.url);
}

/** Behind all ids that are there. */
async function storeSome(url: string): Promise<void> {
  for (let id = 10 ** 9; id < 10 ** 9 + 10; id++)
    expect((await post(url, fern({ id }))).status).toBe(200);
}

test.concurrent.each([
  "a zeroed first page of plants",
  "a zeroed table of the revision of tokens",
] satisfies Damage[])(
  "a start that is refused for %s leaves the file and its WAL as they were",
  async (what) => {
    using store = home();
    await killedServer(store);
    damage(store.database, what);
    const before = digests(store.database);
    expect(await runToEnd(onFreePort(store.options))).toMatchObject({
      exitCode: 1,
      stderr: expect.stringMatching(
        /^Cannot open database "plants\.db": it is corrupt \([^\n]+\); if you copied it here, [^\n]+\n$/,
      ),
    });
    expect(digests(store.database)).toEqual(before);
  },
);

test.concurrent.each(["plants.db", "link.db"])(
  "another application's database is refused as %s, and left as it was, with its WAL",
  async (name) => {
    using directory = emptyDirectory();
    const database = otherApplication(directory.path);
    symlinkSync(database, join(directory.path, "link.db"));
    const before = digests(database);
    const options = {
      cwd: directory.path,
      env: { AUTH_TOKENS: TOKEN },
      args: ["--database", `file:${name}`],
    };

    expect(await runToEnd(onFreePort(options))).toMatchObject({
      exitCode: 1,
      stderr: `Cannot open database "${name}": it belongs to another application\n`,
    });
    expect(digests(database)).toEqual(before);
  },
);

test.concurrent.skipIf(skipsShim())(
  "after a failed fsync the WAL is not moved into the file",
  async () => {
    using disk = makeDisk({ shim: true });
    // Later ones succeed: nothing but the server itself keeps the WAL from being moved.
    await using server = await startServer(disk.server({ faults: { failSync: 8 } }));
    const [file] = digests(disk.database);
    let id = 1;
    let response = await post(server.url);

    while (response.ok) response = await post(server.url, fern({ id: ++id }));
    expect(await readError(response)).toMatchObject({ error: 5032 });
    expect(await exitCodeOf(server.child)).toBe(1);
    expect(digests(disk.database)[0]).toBe(file as string);
    expect(readFileSync(`${disk.database}-wal`).length).toBeGreaterThan(0);
  },
);

/** Leaves what another application does that was killed: a table in the WAL. */
function otherApplication(directory: string): string {
  const open = join(directory, "open.db");
  const killed = join(directory, "plants.db");
  using client = new Database(open);
  client.run("PRAGMA journal_mode = WAL");
  client.run("CREATE TABLE notes (text)");
  for (const suffix of ["", "-wal", "-shm"]) copyFileSync(open + suffix, killed + suffix);
  return killed;
}

test.concurrent(
  "a server that is asked to stop leaves one file, which holds what a killed server left in the WAL",
  async () => {
    using store = home();
    await killedServer(store);
    await using server = await startServer(store.options);
    expect(await stop(server)).toBe(0);
    expect([existsSync(`${store.database}-wal`), existsSync(`${store.database}-shm`)]).toEqual([
      false,
      false,
    ]);
  },
);

test.concurrent(
  "damage that one of two servers finds ends both with the file and its WAL as they were",
  async () => {
    using store = home();
    await using one = await startServer(store.options);
    await using other = await startServer(store.options);
    for (const { stderr } of [one, other]) await stderr.until(/Integrity check passed/);
    await storeSome(other.url);
    damage(store.database, "a zeroed page in the middle");
    const before = digests(store.database);

    // Each id is taken. No page of plants has so few that this leaves it out.
    let status = 409;
    for (let id = 1_000; status === 409; id += 50_000)
      ({ status } = await post(one.url, fern({ id })));
    expect(status).toBe(503);

    for (const { child, stderr } of [one, other]) {
      expect(await exitCodeOf(child)).toBe(1);
      expect(await stderr.end).toContain("Stopping: the storage failed");
    }
    expect(digests(store.database)).toEqual(before);
  },
);
