import { withDeadline } from "../../deadline.ts";
import { PostgresFailure, unavailable } from "./errors.ts";
import type { Lane, Work } from "./lane.ts";

/** Several lanes; a caller gets a free one. */
export interface Lanes {
  /**
   * See {@linkcode Lane.run}; the time, in milliseconds, counts from now on, waiting for a lane included. An attempt that
   * began in time may take `graceMs` more.
   */
  run<Result>(work: Work<Result>, timeoutMs: number, graceMs?: number): Promise<Result>;
  /** How many have a piece of work, or gave one up that the server still works on. */
  busy(): number;
  /** How many have a connection. */
  connected(): number;
  close(): void;
}

/**
 * Makes lanes. The one that was used last is used first: the others connect only when it is busy. One whose work was
 * given up is used again once the server has ended it, so that a stuck statement keeps only its own caller waiting.
 */
export function createLanes(count: number, create: () => Lane): Lanes {
  const lanes = Array.from({ length: count }, create);
  const free = lanes.toReversed();
  const waiting = new Set<(lane: Lane) => void>();

  async function run<Result>(work: Work<Result>, timeoutMs: number, graceMs = 0): Promise<Result> {
    const deadline = performance.now() + timeoutMs;
    const lane = free.pop() ?? (await nextFree(timeoutMs));
    try {
      return await lane.run(work, { deadline, closesAt: deadline + graceMs });
    } finally {
      void lane.settled().then(() => release(lane));
    }
  }

  function nextFree(timeoutMs: number): Promise<Lane> {
    const { promise, resolve } = Promise.withResolvers<Lane>();
    waiting.add(resolve);
    return withDeadline(promise, timeoutMs, () => {
      waiting.delete(resolve);
      throw unavailable(new PostgresFailure("DEADLINE"));
    });
  }

  function release(lane: Lane): void {
    const [next] = waiting;
    if (next === undefined) return void free.push(lane);
    waiting.delete(next);
    next(lane);
  }

  return {
    run,
    busy: () => lanes.length - free.length,
    connected: () => lanes.filter((lane) => lane.isConnected()).length,
    close: () => lanes.forEach((lane) => lane.close()),
  };
}
