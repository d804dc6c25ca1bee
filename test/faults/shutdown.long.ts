import { expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";

import { INTACT, makeLedger, printed, type Verdict, worse } from "../support/ledger.ts";
import { printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { fern } from "../support/plants.ts";
import { FROM_SOURCE, LONG_TEST_TIMEOUT_MS, start, startServer } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { makeDisk } from "../support/shim.ts";
import { send, sendHalf, startOnDisk, stop } from "./health.ts";
import { onFreePort } from "./settle.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const FERN = fern();

test("SIGTERM under 64-way load leaves no request without a response", async () => {
  expect(await drains(scaled(10, 60))).toEqual(INTACT);
});

test.concurrent.each(["SIGTERM", "SIGINT", "SIGQUIT"] as const)(
  "%s with a half-sent body open exits 0 and leaves one file",
  async (signal) => {
    // A fifth is for closing the file: where that takes longer, on a busy machine, the WAL stays.
    await using server = await startOnDisk({ env: { SHUTDOWN_TIMEOUT_MS: "5000" } });
    const { disk, ledger } = server;
    expect((await send(server.url, ledger, FERN)).status).toBe(200);

    await sendHalf(server.url);
    // Bun would wait half a minute for the rest of the body.
    expect(await stop(server, signal)).toBe(0);
    expect(readdirSync(disk.path)).toEqual(["plants.db"]);

    server.requireIntact();
  },
);

// From source a start takes three times as long, and has more moments.
test.concurrent.each([
  ["the executable", undefined, [0, 20, 40, 60, 80]],
  ["the program from source", FROM_SOURCE, [0, 60, 120, 180, 240]],
])(
  "a signal at any moment of the start ends %s, and the next one starts",
  async (_, program, delays) => {
    using disk = makeDisk({ shim: false });
    for (const delay of delays) {
      await using starting = start(onFreePort(disk.server({ program })));
      await Bun.sleep(delay);
      // Before its first line runs a program has no handler, and a signal ends it by itself: 128
      // and 15.
      expect([0, 143]).toContain(await stop(starting));
      const usual = /^\{"@timestamp":.*"(?:level":"INFO|message":"Event loop blocked)".*\n/gm;
      expect((await starting.stderr.end).replaceAll(usual, "")).toBe("");
    }

    await using server = await startServer(disk.server());
    const ledger = makeLedger();
    expect((await send(server.url, ledger, FERN)).status).toBe(200);
    expect(ledger.judge(disk.database)).toEqual(INTACT);
  },
);

/**
 * How late the clients of a drain may be, in milliseconds. They share this thread. A server that
 * stops closes a connection after a quarter of a second of silence (RFC 9112 section 9.5). A client
 * that was itself kept waiting that long sends into the closed connection.
 */
const LATE_MS = 100;

/**
 * Stops a server by SIGTERM under load so many times: each request must get a response.
 *
 * On a busy machine clients can be late (see {@linkcode LATE_MS}). What they got no response to
 * says nothing about the server then, and the drain is repeated.
 */
async function drains(times: number): Promise<Verdict> {
  using disk = makeDisk({ shim: false });
  const random = randomFrom(printedSeed("drain"));
  const next = randomPlants(random);
  const ledger = makeLedger();
  let verdict = INTACT;
  let answered = 0;
  let late = 0;

  for (let drain = 0; drain < times + late; drain++) {
    await using server = await startServer(disk.server());
    const load = startLoad({ url: server.url, connections: 64, ledger, next });
    await Bun.sleep(50 + random() * 200);
    using delay = monitorEventLoopDelay();
    delay.enable();

    const [exitCode, { responses, unanswered, wrong }] = await Promise.all([
      stop(server),
      load.end,
    ]);
    const context = `Drain ${drain}: ${unanswered} unanswered, ${JSON.stringify(responses)}`;
    if (unanswered > 0 && delay.max / 1e6 >= LATE_MS && late < times) late++;
    else expect(unanswered, context).toBe(0);

    expect({ exitCode, wrong }, context).toEqual({ exitCode: 0, wrong: 0 });
    expect(["200", "409/4091", "503/5033"], context).toEqual(
      expect.arrayContaining(Object.keys(responses)),
    );

    answered += load.answered();
    verdict = worse(verdict, ledger.judge(disk.database));
  }

  const size = `${times} drains with 0 unanswered, ${late} of late clients, ${answered} answered, ${ledger.acknowledgements()} acknowledged`;
  return printed("SIGTERM under 64-way load", size, verdict);
}
