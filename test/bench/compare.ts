/**
 * What a stored plant costs the server, beside programs by hand, a lean one and one as strict as ours: CPU from /proc
 * (so Linux only) and throughput, in interleaved rounds on loopback with fresh files and fsync on.
 *
 * `bun test/bench/compare.ts [--connections 64] [--plants 100000] [--rounds 5] [--ids ascending|random]
 * [--warm-up 200000]`
 */
import { closeSync, fdatasyncSync, openSync, writeSync } from "node:fs";
import { availableParallelism, cpus, release } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { emptyDirectory, FROM_SOURCE, startServer } from "../support/program.ts";
import type { Load } from "./load.ts";

const { values: flags } = parseArgs({
  options: {
    connections: { type: "string", default: "64" },
    plants: { type: "string", default: "100000" },
    rounds: { type: "string", default: "5" },
    ids: { type: "string", default: "ascending" },
    // A server runs for years: by then everything is compiled, what runs once a batch, too.
    "warm-up": { type: "string", default: "200000" },
  },
});

const OURS = "this program";
const PROGRAMS: Readonly<Record<string, readonly string[]>> = {
  [OURS]: [...FROM_SOURCE, "serve"],
  "by hand": byHand("by_hand.ts"),
  "by hand, Worker": byHand("by_hand_worker.ts"),
  "by hand, strict": byHand("by_hand.ts", "strictly"),
  "by hand, strict, Worker": byHand("by_hand_worker.ts", "strictly"),
};
const ENV = { AUTH_TOKENS: "benchmark-token-0123456789" };

// A signal ends the load, and that the rest: what is being used is gone at the end of its scope.
const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => stop.abort());

requireUsable();
describeMachine();
const rounds: Round[] = [];
while (rounds.length < Number(flags.rounds)) rounds.push(await round());
for (const name of Object.keys(PROGRAMS)) printCosts(name);
for (const name of Object.keys(PROGRAMS)) if (name !== OURS) printRatio(name);

function byHand(file: string, ...args: readonly string[]): string[] {
  return [process.execPath, join(import.meta.dir, file), ...args];
}

function requireUsable(): void {
  const { ids, ...counts } = flags;
  const bad = Object.entries(counts).find(([, count]) => !/^[1-9]\d*$/.test(count));
  if (bad !== undefined) throw new Error(`Cannot use --${bad[0]} "${bad[1]}": expected a positive integer`);
  if (ids === "ascending" || ids === "random") return;
  throw new Error(`Cannot use --ids "${ids}": expected ascending or random`);
}

type Round = Readonly<Record<string, Load>>;

/** Each program once, in turns from either end: what else the machine does meets all of them alike. */
async function round(): Promise<Round> {
  const loads: Record<string, Load> = {};
  const programs = Object.entries(PROGRAMS);
  if (rounds.length % 2 === 1) programs.reverse();
  for (const [name, program] of programs) loads[name] = await measure(program);
  return loads;
}

async function measure(program: readonly string[]): Promise<Load> {
  stop.signal.throwIfAborted();
  using directory = emptyDirectory();
  await using server = await startServer({ program, cwd: directory.path, env: ENV });
  return await load(server.url, server.child.pid);
}

async function load(url: string, pid: number): Promise<Load> {
  const { connections, plants, ids } = flags;
  const options = { url, pid, connections, plants, ids, "warm-up": flags["warm-up"] };
  const args = Object.entries(options).map(([name, value]) => `--${name}=${value}`);
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "load.ts"), ...args], {
    env: ENV,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
    signal: stop.signal,
  });
  const output = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error(`The load on ${url} ended early`);
  return JSON.parse(output) as Load;
}

/** Whatever else differs between two machines' figures. */
function describeMachine(): void {
  const { connections, plants, ids } = flags;
  console.log(`${availableParallelism()} cores of ${cpus()[0]?.model}, Linux ${release()}, Bun ${Bun.version}`);
  console.log(`one fsync of 4 KiB takes ${fsyncMicros().toFixed(0)} µs`);
  console.log(`${connections} connections, ${ids} ids, ${plants} plants a round, median of ${flags.rounds} rounds\n`);
  console.log(row("", "CPU µs/plant", "user", "system", "plants/s"));
}

function fsyncMicros(): number {
  using directory = emptyDirectory();
  const file = openSync(join(directory.path, "fsync"), "w");
  const micros = Array.from({ length: 200 }, () => {
    const start = performance.now();
    writeSync(file, new Uint8Array(4096));
    fdatasyncSync(file);
    return (performance.now() - start) * 1000;
  });
  closeSync(file);
  return median(micros);
}

function printCosts(name: string): void {
  const of = (figure: (load: Load) => number) => median(rounds.map((round) => figure(loadOf(round, name))));
  const user = of(({ userMicros, plants }) => userMicros / plants);
  const system = of(({ systemMicros, plants }) => systemMicros / plants);
  const throughput = of(({ plants, seconds }) => plants / seconds);
  console.log(row(name, of(cpu).toFixed(1), user.toFixed(1), system.toFixed(1), throughput.toFixed(0)));
}

/** A round's programs ran beside each other, so the ratio is taken in the round. */
function printRatio(name: string): void {
  const ratios = rounds.map((round) => cpu(loadOf(round, OURS)) / cpu(loadOf(round, name)));
  const range = `${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}`;
  console.log(`\n${OURS} / ${name}: ${median(ratios).toFixed(2)} times the CPU a plant (${range})`);
}

function loadOf(round: Round, name: string): Load {
  const load = round[name];
  if (load === undefined) throw new Error(`"${name}" did not run`);
  return load;
}

function cpu({ userMicros, systemMicros, plants }: Load): number {
  return (userMicros + systemMicros) / plants;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2;
}

function row(name: string, ...figures: readonly string[]): string {
  return name.padEnd(24) + figures.map((figure) => figure.padStart(14)).join("");
}
