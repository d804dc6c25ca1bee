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

/** Stops a server by SIGTERM again and again under load, and holds it to answering every request that it got. */
export async function drains({ times, seed, program }: DrainOptions): Promise<Report> {
  const began = performance.now();
  using disk = makeDisk({ shim: false });
  const random = randomFrom(seed);
  const next = randomPlants(random);
  const ledger = makeLedger();
  let [verdict, answered] = [INTACT, 0];
  for (let drain = 0; drain < times; drain++) {
    await using server = await startServer(disk.server({ program }));
    const load = startLoad({ url: server.url, connections: 64, ledger, next });
    await Bun.sleep(50 + random() * 200);
    server.child.kill("SIGTERM");
    const { responses, unanswered, wrong } = await load.end;
    const exitCode = await exitCodeOf(server.child);
    const others = Object.keys(responses).filter((response) => !/^(200|409\/4091|503\/5033)$/.test(response));
    const seen = { exitCode, unanswered, wrong, others };
    if (!Bun.deepEquals(seen, { exitCode: 0, unanswered: 0, wrong: 0, others: [] })) {
      throw new Error(`Drain ${drain}: ${JSON.stringify({ ...seen, responses })}\n${await server.stderr.end}`);
    }
    answered += load.answered();
    verdict = worse(verdict, ledger.judge(disk.database));
  }
  const size = `${times} drains, ${answered} answered, ${ledger.acknowledgements()} acknowledged, 0 unanswered`;
  return { experiment: "SIGTERM under 64-way load", size, verdict, began };
}
