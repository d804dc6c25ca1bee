import { INTACT, makeLedger, type Report, worse } from "../support/ledger.ts";
import { randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { exitCodeOf, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";

/** How to drain a server. */
export interface DrainOptions {
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
export async function drains({ times, seed, program }: DrainOptions): Promise<Report> {
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
