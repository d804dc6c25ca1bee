import type { Lane, LaneLimit, Work } from "./lane.ts";

/** Several lanes; a caller gets a free one. */
export interface Lanes {
  /** See {@linkcode Lane.run}; the time, in milliseconds, counts from now on, waiting for a lane included. */
  run<Result>(work: Work<Result>, timeoutMs: number, options?: Pick<LaneLimit, "reads">): Promise<Result>;
  /** How many have a piece of work. */
  busy(): number;
  /** How many have a connection. */
  connected(): number;
  close(): void;
}

/** Makes lanes. The one that was used last is used first: the others connect only when it is busy. */
export function createLanes(count: number, create: () => Lane): Lanes {
  const lanes = Array.from({ length: count }, create);
  const free = lanes.toReversed();
  /** Work that gets a lane past its own deadline is not begun. */
  const waiting: ((lane: Lane) => void)[] = [];

  async function run<Result>(work: Work<Result>, timeoutMs: number, options = {}): Promise<Result> {
    const deadline = performance.now() + timeoutMs;
    const lane = free.pop() ?? (await new Promise<Lane>((resolve) => waiting.push(resolve)));
    try {
      return await lane.run(work, { deadline, ...options });
    } finally {
      const next = waiting.shift();
      if (next === undefined) free.push(lane);
      else next(lane);
    }
  }

  return {
    run,
    busy: () => lanes.length - free.length,
    connected: () => lanes.filter((lane) => lane.isConnected()).length,
    close: () => lanes.forEach((lane) => lane.close()),
  };
}
