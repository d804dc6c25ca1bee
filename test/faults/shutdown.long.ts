import { expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync } from "node:fs";
import { INTACT, makeLedger, printed, type Report, worse } from "../support/ledger.ts";
import { printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { exitCodeOf, FROM_SOURCE, LONG_TEST_TIMEOUT_MS, start, startServer } from "../support/program.ts";
import { outcomeOf, programOf } from "../support/mutant.ts";
import { makeDisk } from "../support/shim.ts";
import { send, sendHalf } from "./health.ts";
import { onFreePort } from "./settle.ts";
import { STOP_WITHOUT_GRACE } from "./mutations.ts";

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

test("the drain notices a server that stops listening right at the signal", async () => {
  using bug = programOf(STOP_WITHOUT_GRACE);
  expect(await outcomeOf(drains({ times: 20, ...bug }))).toMatch(/"unanswered":[1-9]/);
});

/** How to drain a server. */
interface DrainOptions {
  /** How often. */
  readonly times: number;
  readonly seed: number;
  /** @default the executable */
  readonly program?: readonly string[];
}

/**
 * How late the clients of a drain may be, in milliseconds. A server that stops closes a connection on which nothing came
 * for a quarter of a second (RFC 9112 section 9.5): a client that was itself kept waiting for as long sends into it.
 */
const LATE_MS = 100;

/**
 * Stops a server by SIGTERM again and again under load, and holds it to answering every request that it got. A drain
 * whose clients were late, on a busy machine, says nothing about what they got no response to: it is done once more.
 */
async function drains({ times, seed, program }: DrainOptions): Promise<Report> {
  const began = performance.now();
  using disk = makeDisk({ shim: false });
  const random = randomFrom(seed);
  const next = randomPlants(random);
  const ledger = makeLedger();
  let [verdict, answered, late] = [INTACT, 0, 0];
  for (let drain = 0; drain < times + late; drain++) {
    await using server = await startServer(disk.server({ program }));
    const load = startLoad({ url: server.url, connections: 64, ledger, next });
    await Bun.sleep(50 + random() * 200);
    using clock = watchDelay();
    server.child.kill("SIGTERM");
    const { responses, unanswered: lost, wrong } = await load.end;
    const isLate = lost > 0 && clock.delayMs() >= LATE_MS && late < times;
    const unanswered = isLate ? 0 : lost;
    late += Number(isLate);
    const exitCode = await exitCodeOf(server.child);
    const others = Object.keys(responses).filter((response) => !/^(200|409\/4091|503\/5033)$/.test(response));
    const seen = { exitCode, unanswered, wrong, others };
    if (!Bun.deepEquals(seen, { exitCode: 0, unanswered: 0, wrong: 0, others: [] })) {
      throw new Error(`Drain ${drain}: ${JSON.stringify({ ...seen, responses })}\n${await server.stderr.end}`);
    }
    answered += load.answered();
    verdict = worse(verdict, ledger.judge(disk.database));
  }
  const size = `${times} drains with 0 unanswered, ${late} of late clients, ${answered} answered, ${ledger.acknowledgements()} acknowledged`;
  return { experiment: "SIGTERM under 64-way load", size, verdict, began };
}

/** Watches how late this process is, whose clients share one thread. */
function watchDelay() {
  let [longest, lookedAt] = [0, performance.now()];
  const look = () => {
    const now = performance.now();
    longest = Math.max(longest, now - lookedAt);
    lookedAt = now;
  };
  const timer = setInterval(look, 10);
  return {
    /** The longest time between two looks so far, in milliseconds. */
    delayMs(): number {
      look();
      return longest;
    },
    [Symbol.dispose]: () => clearInterval(timer),
  };
}
