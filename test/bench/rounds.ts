import type { Contender } from "./contenders.ts";
import type { LoadOptions } from "./run_load.ts";
import { type Cost, type Server, startContender } from "./servers.ts";

/** How often and for how long everything is measured. */
export interface Rounds {
  readonly rounds: number;
  /**
   * Before the first round, in seconds for each server of a contender: it runs for years, and is
   * compiled by then.
   */
  readonly warmUp: number;
  /**
   * Of each measurement. {@linkcode compare} loads for as long before it, for each server of a
   * contender.
   */
  readonly seconds: number;
}

/** What each name cost, one figure a round. */
export type Costs = ReadonlyMap<string, readonly Cost[]>;

/**
 * Loads every contender alike in {@linkcode interleave|interleaved} rounds, each with a database of
 * its own.
 */
export async function compare(
  contenders: readonly Contender[],
  { rounds, warmUp, seconds }: Rounds,
  load: Omit<LoadOptions, "seconds">,
): Promise<Costs> {
  await using stack = new AsyncDisposableStack();
  const servers = new Map<string, Server>();

  for (const contender of contenders) {
    const server = stack.use(await startContender(contender));
    await server.load({ ...load, seconds: warmUp * server.servers });
    servers.set(contender.name, server);
  }

  return await interleave(servers, rounds, (server) => steadyCost(server, { ...load, seconds }));
}

/**
 * What a load costs once the server has been under it for as long. An idle server discards compiled
 * code, and compiles again in its first seconds. Several servers share the processors, so each
 * needs that much longer to be compiled.
 */
export async function steadyCost(
  server: Pick<Server, "load" | "servers">,
  load: LoadOptions,
): Promise<Cost> {
  await server.load({ ...load, seconds: load.seconds * server.servers });
  return await server.load(load);
}

/**
 * Each subject once a round, in turns from either end: what else the machine does meets all of them
 * alike.
 */
export async function interleave<Subject>(
  subjects: ReadonlyMap<string, Subject>,
  rounds: number,
  measure: (subject: Subject) => Promise<Cost>,
): Promise<Costs> {
  const costs = new Map<string, Cost[]>(Array.from(subjects.keys(), (name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? [...subjects] : [...subjects].toReversed();
    for (const [name, subject] of order) costs.get(name)?.push(await measure(subject));
  }
  return costs;
}

/** One figure of a name, for each round. */
export function figures(costs: Costs, name: string, figure: keyof Cost): number[] {
  const all = costs.get(name);
  if (all === undefined) throw new Error(`"${name}" did not run`);
  return all.map((cost) => cost[figure]);
}

/** Each round's value over the same round's base: what else the machine did in a round meets both. */
export function ratios(values: readonly number[], bases: readonly number[]): number[] {
  return values.map((value, round) => value / (bases[round] ?? Number.NaN));
}

/** One figure of a name, in times that of another one. */
export function relative(costs: Costs, figure: keyof Cost, name: string, base: string): number[] {
  return ratios(figures(costs, name, figure), figures(costs, base, figure));
}
