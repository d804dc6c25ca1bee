import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";

import { walFileBytes } from "../../src/database/sqlite/path.ts";
import { bearer, post, TOKEN, untilTokenIs } from "../support/client.ts";
import { imageDisk } from "../support/disks.ts";
import { makeLedger } from "../support/ledger.ts";
import { getBytes, limited, newPlants, postBytes, verdictOf } from "../support/load.ts";
import { skipped } from "../support/missing.ts";
import { fern, ivy, moss, TEXT } from "../support/plants.ts";
import {
  exitCodeOf,
  freePort,
  runToEnd,
  start,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { readError } from "../support/responses.ts";
import { shell } from "../support/shell.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import { ask, get, requireReady, send, sendHalf, startOnDisk, stop } from "./health.ts";
import { onFreePort } from "./settle.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Writes hang on a disk that is frozen: fsfreeze(8). */
const FREEZE = "fsfreeze -f disk";
const THAW = "fsfreeze -u disk";
const ownDisk = () => imageDisk("16M", "mkfs.ext4 -q");

function skipsFreeze(): boolean {
  try {
    using disk = ownDisk();
    disk.sh(`${FREEZE}; ${THAW}`);
    return false;
  } catch {
    return skipped("a log on a disk that hangs: a file cannot be mounted and frozen here");
  }
}

/** A server whose disk hangs while it commits a plant, with clients that each wait for theirs. */
async function stuckServer(env: Record<string, string>, clients: number) {
  await using stack = new AsyncDisposableStack();
  const server = stack.use(await startOnDisk({ shim: true, env }));
  const { url, disk, ledger } = server;
  const next = newPlants("stuck disk");
  const load = (connections: number) =>
    server.load({ connections, next: limited(next, connections) }).end;

  disk.raise("hang");
  const first = load(1);
  await disk.hit();
  const others = load(clients - 1);
  while (ledger.attempts() < clients) await Bun.sleep(1);

  // Behind the others: once it has its response, the server has read them.
  expect(await get(url, "/livez")).toBe("200");

  const opened = stack.move();
  return {
    ...server,
    next,
    /** The responses to the plant that is committed and to the others, as soon as all have one. */
    responses: async () => (await Promise.all([first, others])).map(({ responses }) => responses),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

test.concurrent.skipIf(skipsShim())(
  "while the disk hangs, requests that do not need it get their responses",
  async () => {
    await using stuck = await stuckServer({ QUEUE_LIMIT: "8" }, 8);
    const { url, disk, ledger, next } = stuck;
    const notJson = postBytes("{");
    const noToken = postBytes("{}", "unknown-token-0123456789");
    const requests = [getBytes("/livez"), getBytes("/readyz"), notJson, noToken];
    const seen = await Promise.all(requests.map(async (bytes) => verdictOf(await ask(url, bytes))));
    expect(seen).toEqual(["200", "503/5032", "400/4001", "401/4012"]);

    const refused = await ask(url, postBytes(next()));
    expect([verdictOf(refused), refused.headers.get("retry-after")]).toEqual(["503/5031", "1"]);

    // The hang ends here: the responses above came in spite of it.
    disk.clear("hang");
    expect(await stuck.responses()).toEqual([{ "200": 1 }, { "200": 7 }]);
    await requireReady(url, ledger, next);

    stuck.requireIntact();
  },
);

test.concurrent.skipIf(skipsShim())(
  "while the disk hangs, a token that may be revoked stores nothing; metrics are read, and plants are stored afterwards",
  async () => {
    await using server = await startOnDisk({ shim: true });
    const { url, disk, ledger } = server;
    const [greenhouse, scraper] = await Promise.all([
      newToken(disk.database, "greenhouse"),
      newToken(disk.database, "scraper", "--scope", "metrics"),
    ]);
    for (const token of [greenhouse, scraper]) await untilMetricsAre(200, url, token);

    disk.raise("hang");
    const waiting = send(url, ledger, fern());
    await disk.hit();
    await untilMetricsAre(503, url, greenhouse);

    const refused = await post(url, moss({ id: 2n }), { token: greenhouse });
    expect(await readError(refused)).toMatchObject({ status: 503, error: 5031 });
    expect((await metrics(url, scraper)).status).toBe(200);
    expect((await metrics(url, "unknown-token-0123456789")).status).toBe(401);

    disk.clear("hang");
    expect(verdictOf(await waiting)).toBe("200");
    await untilTokenIs(200, url, greenhouse);
    expect(await stop(server)).toBe(0);
    expect(await server.stderr.end).toContain('"reason":"tokens unavailable"');
  },
);

/** Creates a token, as an operator does. */
async function newToken(database: string, name: string, ...args: string[]): Promise<string> {
  const { exitCode, stdout } = await runToEnd({
    args: ["token", "create", name, "--database", database, ...args],
  });
  expect(exitCode).toBe(0);
  return stdout.trim();
}

function metrics(url: string, token: string): Promise<Response> {
  return fetch(`${url}/metrics`, { headers: bearer(token) });
}

/** Reads the metrics until the response has the status. */
async function untilMetricsAre(status: number, url: string, token: string): Promise<void> {
  while ((await metrics(url, token)).status !== status) await Bun.sleep(50);
}

test.concurrent.skipIf(skipsShim())(
  "plants that wait for a hanging disk get 503 at their deadline; those not yet begun are never stored",
  async () => {
    await using stuck = await stuckServer({ REQUEST_TIMEOUT_MS: "300" }, 20);
    const { url, disk, ledger } = stuck;
    expect(await stuck.responses()).toEqual([{ "503/5032": 1 }, { "503/5032": 19 }]);
    expect(await get(url, "/livez")).toBe("200");

    disk.clear("hang");
    await requireReady(url, ledger, () => fern());

    stuck.requireIntact();

    // The Fern, and the one of the twenty that was being committed.
    using database = new Database(disk.database, { readonly: true });
    expect(database.query("SELECT count(*) FROM plants").values()).toEqual([[2]]);
  },
);

test.concurrent.skipIf(skipsShim())(
  "SIGTERM while the disk hangs ends the server after a response to every request",
  async () => {
    // A process that is kept waiting for all of it ends without its responses.
    await using stuck = await stuckServer({ SHUTDOWN_TIMEOUT_MS: "4000" }, 20);
    stuck.child.kill("SIGTERM");
    expect(await stuck.responses()).toEqual([{ "503/5032": 1 }, { "503/5032": 19 }]);
    // Everybody has a response and nothing acknowledged is lost: what the signal asked for is done.
    expect(await exitCodeOf(stuck.child)).toBe(0);
    expect(await stuck.stderr.end).toContain(
      "Cannot close the database: the disk does not respond",
    );
    stuck.requireIntact();
  },
);

const FAILED = '"level":"ERROR","message":"Failed while stopping: the storage failed"';

test.concurrent.skipIf(skipsShim())(
  "an fsync that fails after SIGTERM is exit code 1, soon: the time for requests in flight is over",
  async () => {
    await using stuck = await stuckServer({ SHUTDOWN_TIMEOUT_MS: "600000" }, 1);
    const { url, child, stderr, disk } = stuck;
    await sendHalf(url);
    child.kill("SIGTERM");
    await stderr.until(/Stopping: finishing the requests in flight/);
    disk.raise("fail-sync");
    disk.clear("hang");

    expect(await stuck.responses()).toEqual([{ "503/5032": 1 }, {}]);
    expect(await exitCodeOf(child)).toBe(1);
    expect(await stderr.end).toContain(FAILED);
  },
);

test.concurrent.skipIf(skipsShim())(
  "an fsync that fails while the database is closed is exit code 1 and a line of the log",
  async () => {
    await using server = await startOnDisk({ shim: true });
    expect((await send(server.url, server.ledger, fern())).status).toBe(200);
    server.disk.raise("fail-sync");
    expect(await stop(server)).toBe(1);
    expect((await server.stderr.end).trimEnd().split("\n").at(-2)).toContain(FAILED);
  },
);

test.concurrent.skipIf(skipsShim())(
  "a checkpoint that hangs while the storage fails moves nothing when the disk responds again",
  async () => {
    await using server = await startOnDisk({ shim: true });
    const { disk, stderr, child, ledger } = server;
    disk.raise("hang-checkpoint");
    const next = newPlants("stuck checkpoint");
    const large = () => ({ ...next(), [TEXT]: "x".repeat(4_000) });
    const load = server.load({ next: () => (disk.isRaised("hit") ? undefined : large()) });
    await load.end;
    const wal = walFileBytes(disk.database);
    expect(wal).toBeGreaterThan(0);

    // The stop waits for its rest: the process is still there when the disk responds again.
    await sendHalf(server.url);
    const marked = JSON.stringify({ version: 1, finding: "a page is gone" });
    writeFileSync(`${disk.database}-corrupt`, marked, { mode: 0o600 });
    expect(verdictOf(await send(server.url, ledger, next()))).toBe("503/5032");
    await stderr.until(/Stopping: the storage failed/);
    disk.clear("hang-checkpoint");

    expect(await exitCodeOf(child)).toBe(1);
    expect(walFileBytes(disk.database)).toBe(wal);
  },
);

test.concurrent.skipIf(skipsShim())(
  "a checkpoint that hangs during the stop is left to the next start, and its connection is not the last one",
  async () => {
    // A fifth of it is for closing the database: longer than a failed store waits.
    await using server = await startOnDisk({ shim: true, env: { SHUTDOWN_TIMEOUT_MS: "6000" } });
    const { disk, stderr } = server;
    disk.raise("hang-checkpoint");
    const next = newPlants("checkpoint at the stop");
    const large = () => ({ ...next(), [TEXT]: "x".repeat(4_000) });
    await server.load({ next: () => (disk.isRaised("hit") ? undefined : large()) }).end;
    const wal = walFileBytes(disk.database);

    expect(await stop(server)).toBe(0);
    expect(await stderr.end).toContain("Cannot close the database: the disk does not respond");
    expect(walFileBytes(disk.database)).toBe(wal);
    server.requireIntact();
  },
);

test.concurrent.skipIf(skipsShim())(
  "a start whose file is replaced while it waits for the disk is refused, and takes no plant",
  async () => {
    using disk = makeDisk({ shim: true });
    const { database } = disk;
    const ledger = makeLedger();
    for (const [id, signal] of [
      [1n, "SIGTERM"],
      [2n, "SIGKILL"],
    ] as const) {
      await using before = await startServer(disk.server());
      expect((await send(before.url, ledger, fern({ id }))).status).toBe(200);
      await stop(before, signal);
      if (signal === "SIGTERM") copyFileSync(database, `${database}.backup`);
    }

    disk.raise("hang");
    await using server = start(onFreePort(disk.server()));
    await disk.hit();
    for (const suffix of ["", "-wal"]) renameSync(database + suffix, `${database}.old${suffix}`);
    copyFileSync(`${database}.backup`, database);
    disk.clear("hang");

    expect(await exitCodeOf(server.child)).toBe(1);
    expect(await server.stderr.end).toContain("it was replaced while it was opened; try again");
    expect(readFileSync(database).equals(readFileSync(`${database}.backup`))).toBe(true);
  },
);

test.concurrent.skipIf(skipsFreeze())(
  "a server whose log is on the disk that hangs answers: 503 for plants, and 200 on /livez",
  async () => {
    using disk = ownDisk();
    const port = freePort();
    const url = `http://127.0.0.1:${port}`;
    const log = `exec "$@" 2>> ${disk.path}/log`;
    const env = { AUTH_TOKENS: TOKEN, ACCESS_LOG: "on", REQUEST_TIMEOUT_MS: "1000" };
    const args = ["--port", String(port), "--database", `${disk.path}/plants.db`];
    await using server = start({ program: shell(log), args, env });
    while ((await post(url).catch(() => undefined)) === undefined) await Bun.sleep(20);

    disk.sh(FREEZE);
    const refused = await post(url, moss({ id: 2n }));
    // By now lines wait for the disk.
    const livez = await fetch(`${url}/livez`);
    const next = await post(url, ivy({ id: 3n }));
    disk.sh(THAW);

    expect([refused.status, livez.status, next.status]).toEqual([503, 200, 503]);
    expect(await server.stop()).toBe(0);
    expect(readFileSync(`${disk.path}/log`, "utf8")).toMatch(/"path":"\/livez","status":200/);
  },
);
