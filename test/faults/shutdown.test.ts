import { expect, setDefaultTimeout, test } from "bun:test";
import { Database } from "bun:sqlite";
import { readdirSync } from "node:fs";
import { INTACT, makeLedger, printed } from "../support/ledger.ts";
import { connect, postBytes, printedSeed } from "../support/load.ts";
import { exitCodeOf, FROM_SOURCE, skipsProc, TEST_TIMEOUT_MS, start, startServer } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { underNohup } from "../support/shell.ts";
import { type DiskServerOptions, makeDisk } from "../support/shim.ts";
import { drains } from "./drain.ts";
import { get, send } from "./health.ts";
import { onFreePort } from "./settle.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const fern = { id: 1n, name: "Fern" };

/** A connection whose request ends in the middle of its body, and a server that has read what there is of it. */
async function halfSent(url: string) {
  const connection = await connect(url);
  connection.send(postBytes({ id: 2n, name: "Moss" }).slice(0, -5));
  expect(await get(url, "/livez")).toBe("200");
  return connection;
}

test("SIGTERM under 64-way load leaves no request without a response", async () => {
  const seed = printedSeed("drain");
  expect(printed(await drains({ times: scaled(2, 60), seed }))).toEqual(INTACT);
});

test.concurrent.each(["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP"] as const)(
  "%s with a half-sent body open exits 0 and leaves one file",
  async (signal) => {
    using disk = makeDisk({ shim: false });
    // A fifth is for closing the file: where that takes longer, on a busy machine, the WAL stays.
    await using server = await startServer(disk.server({ env: { SHUTDOWN_TIMEOUT_MS: "5000" } }));
    const ledger = makeLedger();
    expect((await send(server.url, ledger, fern)).status).toBe(200);
    await halfSent(server.url);
    server.child.kill(signal);
    // Bun would wait half a minute for the rest of the body.
    expect(await exitCodeOf(server.child)).toBe(0);
    expect(readdirSync(disk.path)).toEqual(["plants.db"]);
    expect(ledger.judge(disk.database)).toEqual(INTACT);
  },
);

/** Waits until no new connection is taken: whoever is connected then has a request in flight, or is closed. */
async function untilNothingListens(url: string): Promise<void> {
  const isTaken = () =>
    connect(url).then(
      (connection) => (connection.close(), true),
      () => false,
    );
  while (await isTaken()) await Bun.sleep(10);
}

test.concurrent("a response that comes after the server stopped listening asks to close its connection", async () => {
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server());
  const ledger = makeLedger();
  using other = new Database(disk.database);
  other.run("BEGIN IMMEDIATE");
  ledger.attempt(fern);
  const connection = await connect(server.url);
  connection.send(postBytes(fern));
  expect(await get(server.url, "/livez")).toBe("200");
  server.child.kill("SIGTERM");
  await untilNothingListens(server.url);
  other.run("ROLLBACK");
  const response = await connection.response();
  expect([response?.status, response?.headers.get("connection")]).toEqual([200, "close"]);
  ledger.acknowledge(fern);
  expect(await exitCodeOf(server.child)).toBe(0);
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});

test.concurrent.each(["SIGUSR1", "SIGUSR2"] as const)("%s changes nothing", async (signal) => {
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server());
  const ledger = makeLedger();
  const [before, after] = [fern, { id: 2n, name: "Moss" }];
  expect((await send(server.url, ledger, before)).status).toBe(200);
  server.child.kill(signal);
  expect((await send(server.url, ledger, after)).status).toBe(200);
  server.child.kill("SIGTERM");
  expect(await exitCodeOf(server.child)).toBe(0);
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});

test.concurrent.skipIf(skipsProc())("under nohup SIGHUP changes nothing", async () => {
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server({ program: underNohup() }));
  const ledger = makeLedger();
  server.child.kill("SIGHUP");
  expect((await send(server.url, ledger, fern)).status).toBe(200);
  server.child.kill("SIGHUP");
  expect((await send(server.url, ledger, { id: 2n, name: "Moss" })).status).toBe(200);
  server.child.kill("SIGTERM");
  expect(await exitCodeOf(server.child)).toBe(0);
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});

test.concurrent("a second signal ends the server at once", async () => {
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server({ env: { SHUTDOWN_TIMEOUT_MS: "600000" } }));
  await halfSent(server.url);
  server.child.kill("SIGTERM");
  await server.stderr.until(/Stopping/);
  server.child.kill("SIGTERM");
  expect(await exitCodeOf(server.child)).toBe(1);
});

// From source a start takes three times as long, and has more moments.
const { delays, ...options } = scaled<DiskServerOptions & { readonly delays: readonly number[] }>(
  { delays: [0, 20, 40, 60, 80] },
  { delays: [0, 60, 120, 180, 240], program: FROM_SOURCE },
);

test.concurrent("a signal at any moment of the start ends the program, and the next one starts", async () => {
  using disk = makeDisk({ shim: false });
  for (const delay of delays) {
    await using program = start(onFreePort(disk.server(options)));
    await Bun.sleep(delay);
    program.child.kill("SIGTERM");
    // Before its first line runs a program has no handler, and a signal ends it by itself: 128 and 15.
    expect([0, 143]).toContain(await exitCodeOf(program.child));
    const usual = /^\{"@timestamp":.*"(?:level":"INFO|message":"Event loop blocked)".*\n/gm;
    expect((await program.stderr.end).replaceAll(usual, "")).toBe("");
  }
  await using server = await startServer(disk.server());
  const ledger = makeLedger();
  expect((await send(server.url, ledger, fern)).status).toBe(200);
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});
