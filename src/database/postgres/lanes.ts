import { withDeadline } from "../../async/deadline.ts";
import { backoffMs, pause } from "../../async/backoff.ts";
import { PostgresFailure, remedyFor, unavailable } from "./errors.ts";
import type { Lane, Work } from "./lane.ts";

/** Several lanes; a caller gets a free one. */
export interface Lanes {
  /**
   * See {@linkcode Lane.run}; the time, in milliseconds, counts from now on, waiting for a lane included. An attempt that
   * began in time may take `graceMs` more.
   */
  run<Result>(work: Work<Result>, timeoutMs: number, graceMs?: number): Promise<Result>;
  /** Whether a lane has a connection, or gets one within this time, in milliseconds. */
  ready(timeoutMs: number): Promise<boolean>;
  /** How many have a piece of work, gave one up that the server still works on, or connect. */
  busy(): number;
  /** How many have a connection. */
  connected(): number;
  close(): void;
}

/**
 * Makes lanes. The one that is ready and was used last is used first; another one connects when all that are ready are
 * busy. Work that has not begun waits for no connection in particular: where the server takes no more of them, or a new
 * one hangs, those that are there serve all. A lane whose work was given up is used again once the server has ended it,
 * so that a stuck statement keeps only its own caller waiting.
 */
export function createLanes(count: number, create: () => Lane): Lanes {
  return new LanePool(Array.from({ length: count }, create));
}

class LanePool implements Lanes {
  readonly #lanes: readonly Lane[];
  readonly #free: Lane[];
  readonly #waiting = new Set<Waiting>();
  /** How often connecting failed since it last succeeded, and why. */
  #failures = 0;
  #lastFailure: unknown;

  constructor(lanes: readonly Lane[]) {
    this.#lanes = lanes;
    this.#free = lanes.toReversed();
  }

  async run<Result>(work: Work<Result>, timeoutMs: number, graceMs = 0): Promise<Result> {
    const deadline = performance.now() + timeoutMs;
    const lane = this.#takeReady() ?? (await this.#nextReady(deadline));
    try {
      return await lane.run(work, { deadline, closesAt: deadline + graceMs });
    } finally {
      void lane.settled().then(() => this.#release(lane));
    }
  }

  busy(): number {
    return this.#lanes.length - this.#free.length;
  }

  connected(): number {
    return this.#lanes.filter((lane) => lane.isConnected()).length;
  }

  async ready(timeoutMs: number): Promise<boolean> {
    if (this.connected() > 0) return true;
    try {
      this.#release(await this.#nextReady(performance.now() + timeoutMs));
      return true;
    } catch {
      return false;
    }
  }

  close(): void {
    for (const lane of this.#lanes) lane.close();
    this.#reject(this.#waiting, new PostgresFailure("DISPOSED"));
  }

  #takeReady(): Lane | undefined {
    const index = this.#free.findLastIndex((lane) => lane.isReady());
    return index < 0 ? undefined : this.#free.splice(index, 1)[0];
  }

  #nextReady(deadline: number): Promise<Lane> {
    const { promise, resolve, reject } = Promise.withResolvers<Lane>();
    const entry = { deadline, resolve, reject };
    this.#waiting.add(entry);
    const lane = this.#free.pop();
    if (lane !== undefined) void this.#connect(lane);
    return withDeadline(promise, deadline - performance.now(), () => {
      this.#waiting.delete(entry);
      throw unavailable(this.#lastFailure ?? new PostgresFailure("DEADLINE"));
    });
  }

  /** Tries for as long as somebody waits, whom another lane may serve in the meantime. */
  async #connect(lane: Lane): Promise<void> {
    while (this.#waiting.size > 0 && !lane.isReady()) {
      const waiting = [...this.#waiting];
      const latest = Math.max(...waiting.map(({ deadline }) => deadline));
      try {
        await lane.connect(latest - performance.now());
        this.#failures = 0;
        this.#lastFailure = undefined;
      } catch (error) {
        this.#lastFailure = error;
        if (isFinal(error) && this.connected() === 0) this.#reject(waiting, error);
        await pause(backoffMs(this.#failures++));
      }
    }
    this.#release(lane);
  }

  #reject(waiting: Iterable<Waiting>, error: unknown): void {
    const reason = remedyFor(error) === "fault" ? error : unavailable(error);
    for (const each of waiting) if (this.#waiting.delete(each)) each.reject(reason);
  }

  #release(lane: Lane): void {
    const [next] = this.#waiting;
    if (next === undefined) return this.#putBack(lane);
    if (!lane.isReady()) return void this.#connect(lane);
    this.#waiting.delete(next);
    next.resolve(lane);
  }

  /** One that may be stuck is tried after all others. */
  #putBack(lane: Lane): void {
    if (lane.isStuck()) this.#free.unshift(lane);
    else this.#free.push(lane);
  }
}

/** Somebody who needs a lane that is ready until a deadline, as `performance.now()` has it. */
interface Waiting {
  readonly deadline: number;
  readonly resolve: (lane: Lane) => void;
  readonly reject: (error: unknown) => void;
}

/** Whether connecting again in a moment would fail again: a setting, the end of this program, or a bug. */
function isFinal(error: unknown): boolean {
  const code = error instanceof PostgresFailure ? error.code : "";
  return code === "UNSAFE" || code === "DISPOSED" || remedyFor(error) === "fault";
}
