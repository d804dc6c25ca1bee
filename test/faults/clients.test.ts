import { expect, setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { makeLedger } from "../support/ledger.ts";
import { connect, newPlants, startLoad } from "../support/load.ts";
import { startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { shell } from "../support/shell.ts";
import { requireReady, stop } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

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
    await server.load.answers(scaled(500, 5_000));
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
