import { expect, setDefaultTimeout, test } from "bun:test";

import { withDeadline } from "../../src/async/timers.ts";
import { TOKEN } from "../support/client.ts";
import { makeLedger } from "../support/ledger.ts";
import { connect, neverReading, newPlants, postBytes, startLoad } from "../support/load.ts";
import { fern, TEXT } from "../support/plants.ts";
import {
  emptyDirectory,
  LONG_TEST_TIMEOUT_MS,
  memoryDirectory,
  skipsProc,
  startServer,
} from "../support/program.ts";
import { get, stop } from "./health.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const env = { AUTH_TOKENS: TOKEN };

test("requests that waited for a stopped process are served, and the log blames nothing else", async () => {
  // In memory: a commit on a slow disk may take longer than a request.
  using home = emptyDirectory(memoryDirectory());
  const cwd = home.path;
  await using server = await startServer({ cwd, env: { ...env, REQUEST_TIMEOUT_MS: "1500" } });
  const next = newPlants("event loop");
  const load = startLoad({ url: server.url, connections: 32, ledger: makeLedger(), next });

  // A few times make sure that something is in flight at that moment.
  for (let times = 0; times < 2; times++) {
    server.child.kill("SIGSTOP");
    await Bun.sleep(2_500);
    server.child.kill("SIGCONT");
    await Bun.sleep(1_200);
  }

  await server.stderr.until(/"Event loop blocked".*"delayMs":\d+/);
  expect(await load.stop()).toEqual({
    responses: { "200": expect.any(Number) },
    unanswered: 0,
    wrong: 0,
  });
  expect(await stop(server)).toBe(0);
  expect(server.stderr.text()).not.toContain("Storage unavailable");
});

/**
 * When to give up, in milliseconds. Bun's own limits are 12 s for headers and what `idleTimeout`
 * says for the rest.
 */
const BOUND_MS = 200_000;

/** How many sockets a process has open. */
function socketsOf(pid: number): number {
  return Number(Bun.spawnSync(["sh", "-c", `ls -l /proc/${pid}/fd | grep -c socket:`]).stdout);
}

/**
 * A connection that sends a byte every two seconds, from where a request is cut. Resolves when it
 * has ended.
 */
async function sendSlowly(url: string, request: string, from: number): Promise<void> {
  const connection = await connect(url);
  connection.send(request.slice(0, from));
  let next = from;
  using _ = setInterval(() => {
    if (!connection.isClosed() && next < request.length) connection.send(request[next++] ?? "");
  }, 2_000);
  await connection.closed;
}

test.skipIf(skipsProc())("idle, slow and never-reading connections are closed", async () => {
  await using server = await startServer({ env });
  const { url } = server;
  const { pid } = server.child;
  const request = postBytes(fern({ [TEXT]: "x".repeat(1_000) }));
  const before = socketsOf(pid);
  const stalled = await connect(url);
  stalled.send(request.slice(0, -500));
  await neverReading(url);

  const clients = {
    "an idle connection": (await connect(url)).closed,
    "one with slow headers": sendSlowly(url, request, 1),
    "one with a slow body": sendSlowly(url, request, request.indexOf("\r\n\r\n") + 10),
    "one that stalls in its body": stalled.closed,
    // A client that does not read does not see the end: the server's own sockets show it.
    "one that never reads": serverClosesAll(5),
  };

  const began = performance.now();
  const open = Object.entries(clients).map(async ([name, closed]) => {
    const isOpen = await withDeadline(
      closed.then(() => false),
      BOUND_MS,
      () => true,
    );
    console.log(
      `${name} is ${isOpen ? "open" : "closed"} after ${Math.round((performance.now() - began) / 1_000)} s`,
    );

    return isOpen ? [name] : [];
  });

  expect((await Promise.all(open)).flat()).toEqual([]);
  expect(await get(url, "/livez")).toBe("200");

  async function serverClosesAll(connections: number): Promise<void> {
    while (socketsOf(pid) < before + connections) await Bun.sleep(100);
    while (socketsOf(pid) > before) await Bun.sleep(100);
  }
});
