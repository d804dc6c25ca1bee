import { expect, setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { makeLedger } from "../support/ledger.ts";
import {
  connect,
  limited,
  neverReading,
  newPlants,
  postBytes,
  startLoad,
} from "../support/load.ts";
import { fern, TEXT } from "../support/plants.ts";
import { startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { shell } from "../support/shell.ts";
import { requireReady, startOnDisk, stop } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.concurrent("idle, slow and never-reading clients do not hurt the others", async () => {
  await using server = await startOnDisk();
  const { url } = server;
  const idle = await Promise.all(Array.from({ length: 50 }, () => connect(url)));
  const slow = await Promise.all(Array.from({ length: 50 }, () => connect(url)));
  const notReading = await Promise.all(Array.from({ length: 10 }, () => neverReading(url)));
  const request = postBytes(fern({ id: 0n, [TEXT]: "incomplete" }));
  let sent = 0;

  const timer = setInterval(() => {
    for (const connection of slow) connection.send(request[sent] ?? "");
    if (sent < request.length - 2) sent++;
  }, 5);

  const next = limited(newPlants("slow clients"), 500);
  const load = await server.load({ next }).end;
  clearInterval(timer);
  expect(load).toEqual({ responses: { "200": 500 }, unanswered: 0, wrong: 0 });

  for (const connection of [...idle, ...slow, ...notReading]) connection.close("reset");
  // No plant of an incomplete request is stored: the ledger knows of none.
  server.requireIntact();
});

/** A server with 128 file descriptors, and clients that send plants without a pause. */
async function startWithFew(connections: number) {
  const server = await startServer({
    program: shell('ulimit -n 128 && exec "$@"'),
    env: { AUTH_TOKENS: TOKEN },
  });
  const ledger = makeLedger();
  const next = newPlants("descriptors");
  const load = startLoad({ url: server.url, connections, ledger, next });

  return {
    ...server,
    load,
    requireReady: () => requireReady(server.url, ledger, next),
    /** Ends the clients and the server. None of them may have lost its connection. */
    async stop(): Promise<void> {
      expect(await load.stop()).toEqual({
        responses: { "200": expect.any(Number) },
        unanswered: 0,
        wrong: 0,
      });
      expect(await stop(server)).toBe(0);
    },
  };
}

test.concurrent(
  "out of file descriptors, the server goes on serving its open connections, and recovers",
  async () => {
    await using server = await startWithFew(8);
    await server.load.answers(100);

    // The system takes them all; the server has no descriptor for some of them.
    const silent = await Promise.all(Array.from({ length: 150 }, () => connect(server.url)));
    await server.load.answers(5_000);
    for (const connection of silent) connection.close("reset");
    await server.requireReady();
    await server.load.answers(100);
    await server.stop();
  },
);

test.concurrent("more clients than file descriptors: no open connection is lost", async () => {
  await using server = await startWithFew(150);
  await server.load.answers(scaled(2_000, 20_000));
  await server.stop();
});
