import { expect, setDefaultTimeout, test } from "bun:test";
import { post, TOKEN } from "../support/client.ts";
import { INTACT, makeLedger, printed, type Report } from "../support/ledger.ts";
import { emptyDirectory, skipsProc, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { limited, type LoadReport, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { memoryOf } from "../support/proc.ts";
import { scaled } from "../support/scale.ts";
import { makeDisk } from "../support/shim.ts";
import { requireReady } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const MEGABYTE = 2 ** 20;

test.skipIf(skipsProc())("five times too many plants are stored or refused, in bounded memory", async () => {
  const seed = printedSeed("overload");
  const size = scaled(
    { queueLimit: 20, plants: 1_500, restMs: 0 },
    { queueLimit: 1_000, plants: 60_000, restMs: 2_000 },
  );
  const result = await overload({ ...size, seed });
  expect(printed(result)).toEqual(INTACT);
  const { responses, unanswered, wrong } = result.load;
  expect(Object.keys(responses).toSorted()).toEqual(["200", "503/5031"]);
  expect({ unanswered, wrong }).toEqual({ unanswered: 0, wrong: 0 });
  expect(result.memory.most).toBeLessThan(scaled(100, 500) * MEGABYTE);
  // What the load took comes back.
  expect(result.memory.after).toBeLessThan(100 * MEGABYTE);
});

// JavaScriptCore makes an array of a thousand elements for each of these objects: 50 MB of a body of 60 kB.
test.skipIf(skipsProc())(
  "bodies full of objects that look like large arrays take no more memory than others",
  async () => {
    using directory = emptyDirectory();
    await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
    const send = async (key: string) => {
      const body = `{"id":1,"name":"Fern","x":[${Array(6_000).fill(`{"${key}":0}`).join()}]}`;
      const responses = await Promise.all(Array.from({ length: 20 }, () => post(server.url, body)));
      expect(responses.map(({ status }) => status)).toEqual(Array(20).fill(200));
    };
    await send("a");
    const { most } = memoryOf(server.child.pid);
    await send("999");
    expect(memoryOf(server.child.pid).most - most).toBeLessThan(50 * MEGABYTE);
  },
);

/** How to overload a server. */
interface OverloadOptions {
  /** How many plants may wait. Five times as many clients send. */
  readonly queueLimit: number;
  /** How many plants to send. */
  readonly plants: number;
  readonly seed: number;
  /** How long to let the server rest afterwards, in milliseconds. */
  readonly restMs: number;
}

/** How an overloaded server did. */
interface Overload extends Report {
  readonly load: LoadReport;
  /** What the server held in memory at its most, and after its rest, beyond what it held before; in bytes. */
  readonly memory: { readonly most: number; readonly after: number };
}

/** Sends five times as many plants at once as may wait. */
async function overload({ queueLimit, plants, seed, restMs }: OverloadOptions): Promise<Overload> {
  const began = performance.now();
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server({ env: { QUEUE_LIMIT: String(queueLimit) } }));
  const ledger = makeLedger();
  const next = randomPlants(randomFrom(seed), { again: 0, longest: 60_000 });
  await startLoad({ url: server.url, connections: 16, ledger, next: limited(next, 1_000) }).end;
  const before = memoryOf(server.child.pid).now;
  const plan = { connections: 5 * queueLimit, ledger, next: limited(next, plants) };
  const load = await startLoad({ url: server.url, ...plan }).end;
  await Bun.sleep(restMs);
  const { now, most } = memoryOf(server.child.pid);
  await requireReady(server.url, ledger, next);
  const memory = { most: most - before, after: now - before };
  const size = `${plants} sent, ${ledger.acknowledgements()} acknowledged, ${JSON.stringify(load.responses)}, memory ${megabytes(memory.most)} more at most, ${megabytes(memory.after)} after`;
  return { experiment: "overload", size, verdict: ledger.judge(disk.database), began, load, memory };
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MB`;
}
