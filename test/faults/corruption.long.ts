import { expect, setDefaultTimeout, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  truncateSync,
  writeFileSync,
} from "node:fs";

import { post } from "../support/client.ts";
import { type Damage, damage, largeDatabase } from "../support/damage.ts";
import { verdictOf } from "../support/load.ts";
import { mutant } from "../support/mutant.ts";
import { fern } from "../support/plants.ts";
import { exitCodeOf, LONG_TEST_TIMEOUT_MS, start, startServer } from "../support/program.ts";
import { stop } from "./health.ts";
import { LONG_REST } from "./mutations.ts";
import { onFreePort, urlOf } from "./settle.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const PLANTS = 60_000;
const home = () => largeDatabase(PLANTS);

type Home = ReturnType<typeof home>;

const SOUND = {
  exitCode: 0,
  stdout: expect.stringMatching(/^"plants\.db" is sound: [\d,]+ plants, [\d,]+ pages\n$/),
};

/** What a command does on a file that is known to be corrupt. */
const REFUSED = {
  exitCode: 1,
  stderr: expect.stringMatching(
    /^Cannot open database "plants\.db": it is corrupt \([^\n]+\); restore a backup, or run as \S+: plant-store check --database \S+\n$/,
  ),
};

/**
 * A server starts on a damaged file, stores plants, and ends when its check has found the damage.
 *
 * The check begins a second after the start, and plants are refused for a moment before the end. On
 * a busy machine the client may miss either of them: no plant is stored, or none is refused; or the
 * server ends before it listens. Then the run says nothing, and is repeated.
 */
async function serveUntilFound(store: Home, what: Damage): Promise<void> {
  for (let triesLeft = 5; ; triesLeft--) {
    damage(store.database, what);
    await using server = start(onFreePort(store.options));
    const url = await urlOf(server);
    const responses = url === undefined ? [] : await postUntilGone(url);
    expect(await exitCodeOf(server.child)).toBe(1);

    const errors = (await server.stderr.end).match(/^.*Stopping: the storage failed.*$/gm);
    expect(errors).toEqual([expect.stringContaining("storage is corrupt")]);
    expect(["200", "503/5032", "503/5033"]).toEqual(expect.arrayContaining(responses));

    if (responses[0] === "200" && responses.at(-1) !== "200") return;
    expect(triesLeft).toBeGreaterThan(0);

    store.restore();
  }
}

/** Sends plants until there is no server. Resolves to the responses, as status and error. */
async function postUntilGone(url: string): Promise<string[]> {
  const responses: string[] = [];
  for (let id = -1; ; id--) {
    const response = await post(url, fern({ id })).catch(() => undefined);
    if (response === undefined) return responses;
    responses.push(
      verdictOf({
        status: response.status,
        headers: response.headers,
        body: await response.text(),
      }),
    );
  }
}

/** Moves those of the files away that there are. */
function moveAway({ file }: Home, ...names: string[]): void {
  mkdirSync(file("away"));
  for (const name of names)
    if (existsSync(file(name))) renameSync(file(name), file(`away/${name}`));
}

test.each([
  "a zeroed page in the middle",
  "a damaged page of the index of tokens",
] satisfies Damage[])(
  "a server finds %s while it serves, and none starts until a backup is restored",
  async (what) => {
    using store = home();
    await serveUntilFound(store, what);
    const left = readFileSync(store.database);
    expect(await store.call()).toMatchObject(REFUSED);
    expect(await store.call("token", "prune")).toMatchObject(REFUSED);
    expect(await store.call("check")).toMatchObject({
      exitCode: 1,
      stdout: "",
      stderr: expect.stringMatching(/^"plants\.db" is corrupt: [^\n]+\n$/),
    });
    // A check that finds it damaged changes nothing.
    expect(await store.call()).toMatchObject(REFUSED);
    expect(readFileSync(store.database).equals(left)).toBe(true);

    expect(await store.call("restore", "backup.db")).toMatchObject({ exitCode: 0 });
    await using server = await startServer(store.options);
    await server.stderr.until(/"Integrity check passed".*"plants":60000,/);

    expect((await post(server.url, fern())).status).toBe(200);
  },
);

test("a file that is marked and sound is refused until a check has read it", async () => {
  using store = home();
  const sound = readFileSync(store.database);
  await serveUntilFound(store, "a zeroed page in the middle");

  // The same file, with the content of before: its identity does not tell.
  writeFileSync(store.database, sound);
  moveAway(store, "plants.db-wal", "plants.db-shm");
  expect(await store.call()).toMatchObject(REFUSED);
  expect(await store.call("check")).toMatchObject(SOUND);
  expect(existsSync(store.file("plants.db-corrupt"))).toBe(false);

  await using server = await startServer(store.options);
  expect((await post(server.url)).status).toBe(200);
});

test("damage that one server finds ends the others on the file", async () => {
  using store = home();
  await using other = await startServer(store.options);
  await other.stderr.until(/Integrity check passed/);

  // Damaged in place, while it is open: the second server reads it, the first one has checked it
  // before.
  damage(store.database, "a zeroed page in the middle");
  await using finder = await startServer(store.options);
  expect([await exitCodeOf(finder.child), await exitCodeOf(other.child)]).toEqual([1, 1]);
  expect(await other.stderr.end).toContain("Stopping: the storage failed");
});

test("a truncated file is refused at once, and left as it is", async () => {
  using store = home();
  // The first of some 550 pages.
  truncateSync(store.database, 200 * 4_096);
  const left = readFileSync(store.database);
  expect(await store.call()).toMatchObject({
    exitCode: 1,
    stderr: 'Cannot open database "plants.db": it is corrupt (database disk image is malformed)\n',
  });
  expect(readFileSync(store.database).equals(left)).toBe(true);
});

test("a server that is stopped while its check rests closes its database", async () => {
  using store = home();
  using copy = mutant(LONG_REST);
  await using server = await startServer({ ...store.options, program: copy.program });
  expect((await post(server.url)).status).toBe(200);

  await server.stderr.until(/Integrity check started/);
  expect(await stop(server)).toBe(0);
  expect(await server.stderr.end).not.toContain("Cannot close the database");
  expect(existsSync(`${store.database}-wal`)).toBe(false);
});

test("check says in one line that a database is sound, even beside a server, and changes nothing", async () => {
  using store = home();
  const before = readFileSync(store.database);
  expect(await store.call("check")).toMatchObject({ ...SOUND, stderr: "" });
  expect(readFileSync(store.database).equals(before)).toBe(true);

  await using server = await startServer(store.options);
  expect((await post(server.url)).status).toBe(200);
  expect((await store.call("check")).stdout).toContain(
    `sound: ${(PLANTS + 1).toLocaleString("en-US")} plants`,
  );
});
