import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";

import { connect, postBytes } from "../support/load.ts";
import { fern, moss } from "../support/plants.ts";
import { exitCodeOf, TEST_TIMEOUT_MS } from "../support/program.ts";
import { underNohup } from "../support/shell.ts";
import { get, send, sendHalf, startOnDisk, stop } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = fern();

test.concurrent(
  "a response that comes after the server stopped listening asks to close its connection",
  async () => {
    await using server = await startOnDisk();
    const { disk, ledger } = server;
    using other = new Database(disk.database);
    other.run("BEGIN IMMEDIATE");
    ledger.attempt(FERN);

    const connection = await connect(server.url);
    connection.send(postBytes(FERN));
    expect(await get(server.url, "/livez")).toBe("200");

    server.child.kill("SIGTERM");
    // No new connection is taken: whoever is connected then has a request in flight, or is closed.
    const connectOnce = () => connect(server.url).catch(() => undefined);

    for (let taken = await connectOnce(); taken !== undefined; taken = await connectOnce()) {
      taken.close();
      await Bun.sleep(10);
    }

    other.run("ROLLBACK");
    const response = await connection.response();
    expect([response?.status, response?.headers.get("connection")]).toEqual([200, "close"]);

    ledger.acknowledge(FERN);
    expect(await exitCodeOf(server.child)).toBe(0);

    server.requireIntact();
  },
);

test.concurrent.each([
  ["SIGUSR1", "changes nothing", false],
  ["SIGUSR2", "changes nothing", false],
  ["SIGHUP", "without HTTPS changes nothing", false],
  ["SIGHUP", "under nohup changes nothing", true],
] as const)("%s %s", async (signal, _what, isUnderNohup) => {
  await using server = await startOnDisk({ program: isUnderNohup ? underNohup() : undefined });

  for (const plant of [FERN, moss({ id: 2n })]) {
    server.child.kill(signal);
    expect((await send(server.url, server.ledger, plant)).status).toBe(200);
  }

  expect(await stop(server)).toBe(0);

  server.requireIntact();
});

test.concurrent("a second signal ends the server at once", async () => {
  await using server = await startOnDisk({ env: { SHUTDOWN_TIMEOUT_MS: "600000" } });
  await sendHalf(server.url);
  server.child.kill("SIGTERM");
  await server.stderr.until(/Stopping/);

  // The first of these may still be the same press of Ctrl-C.
  while (server.child.exitCode === null) {
    server.child.kill("SIGTERM");
    await Bun.sleep(50);
  }
  expect(server.child.exitCode).toBe(1);
});

test.concurrent("a signal that comes twice at once lets requests in flight finish", async () => {
  await using server = await startOnDisk();
  const plant = moss({ id: 2n });
  server.ledger.attempt(plant);
  const connection = await sendHalf(server.url);
  // The system would merge two that are the same.
  server.child.kill("SIGINT");
  server.child.kill("SIGTERM");
  await server.stderr.until(/Stopping/);

  connection.send(postBytes(plant).slice(-5));
  expect((await connection.response())?.status).toBe(503);
  expect(await exitCodeOf(server.child)).toBe(0);
  server.requireIntact();
});
