import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { post, TOKEN } from "../support/client.ts";
import { type Damage, damage, largeDatabase } from "../support/damage.ts";
import { emptyDirectory, exitCodeOf, runToEnd, start, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import { onFreePort } from "./settle.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** The database and its WAL, as digests. */
function digests(database: string): readonly string[] {
  const digest = (path: string) => new Bun.CryptoHasher("sha256").update(readFileSync(path)).digest("hex");
  return [database, `${database}-wal`].map(digest);
}

const home = () => largeDatabase(20_000);

/** Leaves plants in the WAL, and with them the last page of plants. */
async function killedServer({ options }: ReturnType<typeof home>): Promise<void> {
  await using server = await startServer(options);
  await storeSome(server.url);
  server.child.kill("SIGKILL");
  await server.child.exited;
}

/** Behind all ids that are there. */
async function storeSome(url: string): Promise<void> {
  for (let id = 10 ** 9; id < 10 ** 9 + 10; id++) expect((await post(url, { id, name: "Fern" })).status).toBe(200);
}

test.concurrent.each(["a zeroed first page of plants", "a zeroed table of the revision of tokens"] satisfies Damage[])(
  "a start that is refused for %s leaves the file and its WAL as they were",
  async (what) => {
    using store = home();
    await killedServer(store);
    damage(store.database, what);
    const before = digests(store.database);
    const { exitCode, stderr } = await runToEnd(onFreePort(store.options));
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/^Cannot open database "plants\.db": it is corrupt \([^\n]+\)\n$/);
    expect(digests(store.database)).toEqual(before);
  },
);

test.concurrent.each(["plants.db", "link.db"])(
  "another application's database is refused as %s, and left as it was, with its WAL",
  async (name) => {
    using directory = emptyDirectory();
    const database = await otherApplication(directory.path);
    symlinkSync(database, join(directory.path, "link.db"));
    const before = digests(database);
    const options = { cwd: directory.path, env: { AUTH_TOKENS: TOKEN }, args: ["--database", `file:${name}`] };
    const { exitCode, stderr } = await runToEnd(onFreePort(options));
    expect(exitCode).toBe(1);
    expect(stderr).toBe(`Cannot open database "${name}": it belongs to another application\n`);
    expect(digests(database)).toEqual(before);
  },
);

test.concurrent.skipIf(skipsShim())("after a failed fsync the WAL is not moved into the file", async () => {
  using disk = makeDisk({ shim: true });
  // Later ones succeed: nothing but the server itself keeps the WAL from being moved.
  await using server = await startServer(disk.server({ faults: { failSync: 8 } }));
  const [file] = digests(disk.database);
  const response = await firstRefusal(server.url);
  expect(response.status).toBe(503);
  expect(await response.json()).toMatchObject({ error: 5032 });
  expect(await exitCodeOf(server.child)).toBe(1);
  expect(digests(disk.database)[0]).toBe(file as string);
  expect(readFileSync(`${disk.database}-wal`).length).toBeGreaterThan(0);
});

/** Sends plants until one is not stored. */
async function firstRefusal(url: string): Promise<Response> {
  for (let id = 1; ; id++) {
    const response = await post(url, { id, name: "Fern" });
    if (response.status !== 200) return response;
  }
}

/** What another application leaves that was killed: a table in the WAL. */
const OTHER_APPLICATION = `
  import { Database } from "bun:sqlite";
  const client = new Database("plants.db");
  client.run("PRAGMA journal_mode = WAL");
  client.run("CREATE TABLE notes (text)");
  process.kill(process.pid, "SIGKILL");`;

async function otherApplication(directory: string): Promise<string> {
  const script = join(directory, "other.ts");
  writeFileSync(script, OTHER_APPLICATION);
  await using other = start({ program: [process.execPath, script], cwd: directory });
  await other.child.exited;
  return join(directory, "plants.db");
}

test.concurrent("a server that is asked to stop leaves one file, with what a killed one left in the WAL", async () => {
  using store = home();
  await killedServer(store);
  await using server = await startServer(store.options);
  server.child.kill("SIGTERM");
  expect(await exitCodeOf(server.child)).toBe(0);
  expect([existsSync(`${store.database}-wal`), existsSync(`${store.database}-shm`)]).toEqual([false, false]);
});

test.concurrent.each([1, 2])(
  "damage that one of %d servers finds ends all with the file and its WAL as they were",
  async (count) => {
    await using serving = await storedOnDamage(count);
    for (const { child, stderr } of serving.servers) {
      expect(await exitCodeOf(child)).toBe(1);
      expect(await stderr.end).toContain("Stopping: the storage failed");
    }
    expect(digests(serving.database)).toEqual(serving.before);
  },
);

/**
 * Servers on a damaged file that have stored plants, and the file and its WAL as they are then. They have a second from
 * their start until they find the damage: where that was too short, on a busy machine, it is done once more.
 */
async function storedOnDamage(count: number) {
  for (let triesLeft = 5; ; triesLeft--) {
    await using stack = new AsyncDisposableStack();
    const { database, options } = stack.use(home());
    damage(database, "a zeroed page in the middle");
    try {
      const starts = Array.from({ length: count }, async () => stack.use(await startServer(options)));
      await Promise.allSettled(starts);
      const servers = await Promise.all(starts);
      await storeSome(servers.at(-1)?.url ?? "");
      const [before, opened] = [digests(database), stack.move()];
      return { database, servers, before, [Symbol.asyncDispose]: () => opened.disposeAsync() };
    } catch (error) {
      if (triesLeft === 0 || !existsSync(`${database}-corrupt`)) throw error;
    }
  }
}
