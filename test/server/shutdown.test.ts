import { expect, setDefaultTimeout, test } from "bun:test";

import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { HttpServer } from "../../src/server/http_server.ts";
import { finishRequests } from "../../src/server/service.ts";
import { parseConfig } from "../../src/settings/settings.ts";
import { testApp } from "../support/app.ts";
import { connect, postBytes } from "../support/load.ts";
import { fern, moss } from "../support/plants.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Longer than a server that stops waits for requests. */
const STALL_MS = 300;

test("finishRequests() of a server that stalls before its last response still answers the client's next request", async () => {
  const begun = Promise.withResolvers<void>();
  const stored = Promise.withResolvers<readonly ["added"]>();

  const add = () => {
    begun.resolve();
    return stored.promise;
  };

  const commits = groupCommit({ add, probe: async () => {} });
  const config = parseConfig({}, { port: "0" });
  const stop = new AbortController();
  const server = new HttpServer(config, stop.signal);
  const app = testApp({ plants: commits, isShuttingDown: server.isShuttingDown });
  const address = server.listen({
    fetch: app.fetch,
    error: () => new Response(null, { status: 500 }),
  });
  const response = (await connect(address)).request(postBytes(fern()));

  await begun.promise;
  stop.abort();
  const stopped = finishRequests(server, commits, config.shutdownTimeoutMs);

  stored.resolve(["added"]);
  Bun.sleepSync(STALL_MS);
  const last = await response;
  expect([last?.status, last?.headers.get("connection")]).toEqual([200, "close"]);

  const next = await (await connect(address)).request(postBytes(moss({ id: 2n })));
  expect([next?.status, next?.headers.get("connection")]).toEqual([503, "close"]);
  expect(next?.body).toBe(
    '{"error":5033,"message":"the server is shutting down; send the plant again"}',
  );

  await stopped;
});
