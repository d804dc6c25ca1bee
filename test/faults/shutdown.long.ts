import { expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync } from "node:fs";
import { INTACT, makeLedger, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { exitCodeOf, FROM_SOURCE, LONG_TEST_TIMEOUT_MS, start, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { drains } from "./drain.ts";
import { sendHalf } from "./half_sent.ts";
import { send } from "./health.ts";
import { onFreePort } from "./settle.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const fern = { id: 1n, name: "Fern" };

test("SIGTERM under 64-way load leaves no request without a response", async () => {
  const seed = printedSeed("drain");
  expect(printed(await drains({ times: 60, seed }))).toEqual(INTACT);
});

test.concurrent.each(["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP"] as const)(
  "%s with a half-sent body open exits 0 and leaves one file",
  async (signal) => {
    using disk = makeDisk({ shim: false });
    // A fifth is for closing the file: where that takes longer, on a busy machine, the WAL stays.
    await using server = await startServer(disk.server({ env: { SHUTDOWN_TIMEOUT_MS: "5000" } }));
    const ledger = makeLedger();
    expect((await send(server.url, ledger, fern)).status).toBe(200);
    await sendHalf(server.url);
    server.child.kill(signal);
    // Bun would wait half a minute for the rest of the body.
    expect(await exitCodeOf(server.child)).toBe(0);
    expect(readdirSync(disk.path)).toEqual(["plants.db"]);
    expect(ledger.judge(disk.database)).toEqual(INTACT);
  },
);

// From source a start takes three times as long, and has more moments.
test.concurrent.each([
  ["the executable", undefined, [0, 20, 40, 60, 80]],
  ["the program from source", FROM_SOURCE, [0, 60, 120, 180, 240]],
])("a signal at any moment of the start ends %s, and the next one starts", async (_, program, delays) => {
  using disk = makeDisk({ shim: false });
  for (const delay of delays) {
    await using starting = start(onFreePort(disk.server({ program })));
    await Bun.sleep(delay);
    starting.child.kill("SIGTERM");
    // Before its first line runs a program has no handler, and a signal ends it by itself: 128 and 15.
    expect([0, 143]).toContain(await exitCodeOf(starting.child));
    const usual = /^\{"@timestamp":.*"(?:level":"INFO|message":"Event loop blocked)".*\n/gm;
    expect((await starting.stderr.end).replaceAll(usual, "")).toBe("");
  }
  await using server = await startServer(disk.server());
  const ledger = makeLedger();
  expect((await send(server.url, ledger, fern)).status).toBe(200);
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});
