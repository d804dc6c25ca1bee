import { makeDisk } from "../../support/shim.ts";
import { type Contender, ELYSIA_DRIZZLE, ours, OURS_NAME } from "../contenders.ts";
import { canRequireFsync } from "../durability.ts";
import { GOALS } from "../goals.ts";
import { installPeers } from "../peers.ts";
import { type Outcome, outcome, type Section, thousands } from "../report.ts";
import { compare, type Costs, figures, type Rounds } from "../rounds.ts";
import type { Cost } from "../servers.ts";
import { median, ratios } from "../statistics.ts";

/** How much longer an fsync takes than on the disk of this machine, in milliseconds: about an SSD's, and a network disk's. */
const SYNC_MS = [1, 5];

/** Throughput where an fsync takes longer, beside one transaction a request. */
export async function disk(rounds: Rounds): Promise<Section> {
  const title = "Slower disks";
  const about =
    "64 connections, ascending ids; each fsync takes so many milliseconds longer than on the disk of this machine.";
  if (!canRequireFsync)
    return { title, about, columns: [], rows: [], missing: ["slower disks: there is no C compiler (cc)"] };
  await installPeers();
  using stack = new DisposableStack();
  const contenders = SYNC_MS.flatMap((syncMs) =>
    [ours(), ELYSIA_DRIZZLE].map((contender) => onDisk(contender, syncMs, stack.use(makeDisk({ shim: true })))),
  );
  const costs = await compare(contenders, rounds, { connections: 64 });
  return {
    title,
    about,
    columns: ["program", "plants/s", "p50 ms", "p99 ms", "CPU µs/plant"],
    rows: contenders.map(({ name }) => row(name, costs)),
    costs: Object.fromEntries(costs),
    goals: SYNC_MS.map((syncMs) => throughputGoal(syncMs, costs)),
  };
}

function onDisk({ name, program }: Contender, syncMs: number, disk: ReturnType<typeof makeDisk>): Contender {
  const { cwd, env } = disk.server({ faults: { syncMs } });
  return { name: named(name, syncMs), program, ...(cwd && { cwd }), ...(env && { env }) };
}

function named(name: string, syncMs: number): string {
  return `${name}, ${syncMs} ms`;
}

function row(name: string, costs: Costs): string[] {
  const of = (figure: (cost: Cost) => number) => median(figures(costs, name, figure));
  const [p50, p99] = [of(({ p50Ms }) => p50Ms), of(({ p99Ms }) => p99Ms)];
  return [
    name,
    thousands(of(({ perSecond }) => perSecond)),
    p50.toFixed(2),
    p99.toFixed(2),
    of(({ cpuMicros }) => cpuMicros).toFixed(1),
  ];
}

function throughputGoal(syncMs: number, costs: Costs): Outcome {
  const rate = (name: string) => figures(costs, named(name, syncMs), ({ perSecond }) => perSecond);
  const faster = ratios(rate(OURS_NAME), rate(ELYSIA_DRIZZLE.name));
  return outcome(`plants/s / ${named(ELYSIA_DRIZZLE.name, syncMs)}`, faster, GOALS.throughputToElysia, "least");
}
