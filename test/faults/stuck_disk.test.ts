import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { post } from "../support/client.ts";
import { INTACT, makeLedger } from "../support/ledger.ts";
import { connect, getBytes, postBytes, randomFrom, randomPlants, verdictOf, printedSeed } from "../support/load.ts";
import { exitCodeOf, TEST_TIMEOUT_MS, startServer } from "../support/program.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import { ask, get, requireReady } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A server whose disk hangs, with clients that wait for it. */
async function stuckServer(env: Record<string, string>, clients: number) {
  const disk = makeDisk({ shim: true });
  const server = await startServer(disk.server({ env }));
  const ledger = makeLedger();
  const next = randomPlants(randomFrom(printedSeed("stuck disk")), { longest: 100, again: 0 });
  disk.raise("hang");
  const waiting: Promise<string>[] = [];
  async function sendOne(): Promise<void> {
    const connection = await connect(server.url);
    const plant = next();
    ledger.attempt(plant);
    const response = connection.request(postBytes(plant)).then((response) => {
      connection.close();
      if (response?.status === 200) ledger.acknowledge(plant);
      return response === undefined ? "none" : verdictOf(response);
    });
    waiting.push(response);
  }
  await sendOne();
  await disk.hit();
  for (let client = 1; client < clients; client++) await sendOne();
  // Behind the others: once it has its response, the server has read them.
  expect((await fetch(`${server.url}/livez`)).status).toBe(200);
  return {
    disk,
    server,
    ledger,
    next,
    /** Each client's response, as soon as all have one. */
    responses: () => Promise.all(waiting),
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      disk[Symbol.dispose]();
    },
  };
}

function countRows(path: string): number {
  using database = new Database(path, { readonly: true });
  return Number(database.query("SELECT count(*) FROM plants").values()[0]?.[0]);
}

test.concurrent.skipIf(skipsShim())("while the disk hangs, what does not need it gets its response", async () => {
  await using stuck = await stuckServer({ QUEUE_LIMIT: "8" }, 8);
  const { url } = stuck.server;
  const [notJson, noToken] = [postBytes("{"), postBytes("{}", "unknown-token-0123456789")];
  const requests = [getBytes("/livez"), getBytes("/readyz"), notJson, noToken];
  const seen = await Promise.all(requests.map(async (bytes) => verdictOf(await ask(url, bytes))));
  expect(seen).toEqual(["200", "503/5032", "400/4001", "401/4012"]);
  const refused = await ask(url, postBytes(stuck.next()));
  expect([verdictOf(refused), refused.headers.get("retry-after")]).toEqual(["503/5031", "1"]);
  // The hang ends here: the responses above came in spite of it.
  stuck.disk.clear("hang");
  expect(new Set(await stuck.responses())).toEqual(new Set(["200"]));
  await requireReady(url, stuck.ledger, stuck.next);
  expect(stuck.ledger.judge(stuck.disk.database)).toEqual(INTACT);
});

test.concurrent.skipIf(skipsShim())(
  "requests that a hanging disk keeps waiting are answered at their deadline",
  async () => {
    await using stuck = await stuckServer({ REQUEST_TIMEOUT_MS: "300" }, 20);
    expect(await stuck.responses()).toEqual(Array.from({ length: 20 }, () => "503/5032"));
    expect(await get(stuck.server.url, "/livez")).toBe("200");
    stuck.disk.clear("hang");
    await requireReady(stuck.server.url, stuck.ledger, stuck.next);
    expect(stuck.ledger.judge(stuck.disk.database)).toEqual(INTACT);
  },
);

test.concurrent.skipIf(skipsShim())(
  "a plant that waited for a hanging disk until its deadline is not stored later",
  async () => {
    await using stuck = await stuckServer({ REQUEST_TIMEOUT_MS: "300" }, 20);
    await stuck.responses();
    stuck.disk.clear("hang");
    await requireReady(stuck.server.url, stuck.ledger, () => ({ id: 1n, name: "Fern" }));
    // The first of the twenty was being committed; the others had not begun.
    const rows = countRows(stuck.disk.database);
    expect(rows).toBe(2);
  },
);

test.concurrent.skipIf(skipsShim())("SIGTERM while the disk hangs answers everybody and ends the server", async () => {
  await using stuck = await stuckServer({ SHUTDOWN_TIMEOUT_MS: "1000" }, 20);
  stuck.server.child.kill("SIGTERM");
  expect(await stuck.responses()).toEqual(Array.from({ length: 20 }, () => "503/5032"));
  // Everybody has a response and nothing acknowledged is lost: what the signal asked for is done.
  expect(await exitCodeOf(stuck.server.child)).toBe(0);
  expect(await stuck.server.stderr.end).toContain("Database not closed: the disk does not respond");
  expect(stuck.ledger.judge(stuck.disk.database)).toEqual(INTACT);
});

test.concurrent.skipIf(skipsShim())("an fsync that fails after SIGTERM is exit code 1", async () => {
  await using stuck = await stuckServer({}, 1);
  const { child, stderr } = stuck.server;
  child.kill("SIGTERM");
  await stderr.until(/Stopping: finishing the requests in flight/);
  stuck.disk.raise("fail-sync");
  stuck.disk.clear("hang");
  expect(await stuck.responses()).toEqual(["503/5032"]);
  expect(await exitCodeOf(child)).toBe(1);
  expect(await stderr.end).toContain('"level":"ERROR","message":"The storage failed while stopping"');
});

test.concurrent.skipIf(skipsShim())(
  "an fsync that fails while the database is closed is exit code 1 and a line of the log",
  async () => {
    using disk = makeDisk({ shim: true });
    await using server = await startServer(disk.server());
    expect((await post(server.url)).status).toBe(200);
    disk.raise("fail-sync");
    server.child.kill("SIGTERM");
    expect(await exitCodeOf(server.child)).toBe(1);
    const lines = (await server.stderr.end).trimEnd().split("\n");
    expect(lines.at(-1)).toContain('"level":"ERROR","message":"The storage failed while stopping"');
  },
);
