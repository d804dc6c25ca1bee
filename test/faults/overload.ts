import { readFileSync } from "node:fs";
import { makeLedger, type Report } from "../support/ledger.ts";
import { limited, type LoadReport, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { requireReady } from "./health.ts";

/** How to overload a server. */
export interface OverloadOptions {
  /** How many plants may wait. Five times as many clients send. */
  readonly queueLimit: number;
  /** How many plants to send. */
  readonly plants: number;
  readonly seed: number;
  /** How long to let the server rest afterwards, in milliseconds. */
  readonly restMs: number;
}

/** How an overloaded server did. */
export interface Overload extends Report {
  readonly load: LoadReport;
  /** What the server held in memory at its most, and after its rest, beyond what it held before; in bytes. */
  readonly memory: { readonly most: number; readonly after: number };
}

/** Sends five times as many plants at once as may wait. */
export async function overload({ queueLimit, plants, seed, restMs }: OverloadOptions): Promise<Overload> {
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

/** What a process holds in memory now, and has held at its most; in bytes. */
export function memoryOf(pid: number): { now: number; most: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const bytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]) * 1024;
  return { now: bytes("VmRSS"), most: bytes("VmHWM") };
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MB`;
}
