import { withDeadline } from "../../async/deadline.ts";
import { backoffMs, pause } from "../../async/backoff.ts";
import type { Connection } from "./connection.ts";
import { PostgresFailure, remedyFor, unavailable } from "./errors.ts";
import type { LaneCounts } from "./lane_counts.ts";
import { type Backend, stillWorks } from "./session.ts";

/** Something to run on a connection; `attempt` counts from 0, and a later one may find what an earlier one did. */
export type Work<Result> = (connection: Connection, attempt: number) => Promise<Result>;

/** What a piece of work is limited to. */
export interface LaneLimit {
  /** When to give up, as `performance.now()` has it. */
  readonly deadline: number;
  /** When to close the connection of an attempt that began before the deadline. @default {deadline} */
  readonly closesAt?: number;
}

/** One connection at a time, with one piece of work in flight. */
export interface Lane {
  /**
   * Runs a piece of work, on a new connection where the one there was lost, and again where that is safe and the time
   * allows. Work that is late is given up by closing the connection, the only way to end a connection that no longer
   * responds. It is never cancelled: that turns waiting for a synchronous standby into success.
   *
   * @throws {PlantStoreError} `storage_unavailable`; what was sent may or may not have been committed.
   */
  run<Result>(work: Work<Result>, limit: LaneLimit): Promise<Result>;
  /** Makes sure of a connection within a time, in milliseconds; rejects with why there is none. Sends no work. */
  connect(timeoutMs: number): Promise<void>;
  /**
   * Resolves once nothing that was given up here keeps the server busy: what came next would wait behind it. Where the
   * server does not say, it resolves too, and the next piece of work finds out.
   */
  settled(): Promise<void>;
  /** Whether it has a connection. */
  isConnected(): boolean;
  /** Whether work would be sent at once: on a connection, and behind nothing that was given up. */
  isReady(): boolean;
  /** Whether something that was given up here may still keep the server busy. */
  isStuck(): boolean;
  /** Gives up its connection, and whatever is in flight there; it makes no other one, and sends nothing again. */
  close(): void;
}

/** Opens a connection within a time, in milliseconds. */
export type Connect = (timeoutMs: number) => Promise<Connection>;

/** Makes a lane, which connects when it is first used. */
export function createLane(connect: Connect, counts: LaneCounts): Lane {
  return new ConnectionLane(connect, counts);
}

class ConnectionLane implements Lane {
  readonly #connect: Connect;
  readonly #counts: LaneCounts;
  #connection: Connection | undefined;
  #wasConnected = false;
  #isClosed = false;
  /** A server process that may still work on a statement whose connection is gone. */
  #abandoned: Backend | undefined;

  constructor(connect: Connect, counts: LaneCounts) {
    this.#connect = connect;
    this.#counts = counts;
  }

  async run<Result>(work: Work<Result>, limit: LaneLimit): Promise<Result> {
    for (let attempt = 0; ; attempt++) {
      if (this.#isClosed) throw unavailable(new PostgresFailure("DISPOSED"));
      if (performance.now() >= limit.deadline) throw unavailable(new PostgresFailure("DEADLINE"));
      try {
        return await beforeDeadline(limit.closesAt ?? limit.deadline, (isLate) =>
          this.#attempt(work, attempt, { ...limit, isLate }),
        );
      } catch (error) {
        await this.#recover(error, attempt, limit.deadline);
      }
      this.#counts.retries++;
    }
  }

  async connect(timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    try {
      await beforeDeadline(deadline, (isLate) => this.#usableConnection({ deadline, isLate }));
    } catch (error) {
      if (remedyFor(error) !== "repeat") this.#disconnect();
      throw error;
    }
  }

  async settled(): Promise<void> {
    for (let attempt = 0; this.#abandoned !== undefined && !this.#isClosed; attempt++) {
      try {
        await this.connect(SETTLE_TIMEOUT_MS);
      } catch (error) {
        if (remedyFor(error) !== "repeat") return;
        await pause(backoffMs(attempt));
      }
    }
  }

  isConnected(): boolean {
    return this.#connection?.isOpen() === true;
  }

  isReady(): boolean {
    return this.isConnected() && !this.isStuck();
  }

  isStuck(): boolean {
    return this.#abandoned !== undefined;
  }

  close(): void {
    this.#isClosed = true;
    this.#disconnect();
  }

  #disconnect(): void {
    // Keep the first abandoned process: later connections sent nothing.
    this.#abandoned ??= this.#connection?.backend;
    this.#connection?.close();
    this.#connection = undefined;
  }

  async #attempt<Result>(work: Work<Result>, attempt: number, limit: Limit): Promise<Result> {
    const connection = await this.#usableConnection(limit);
    const start = performance.now();
    const result = await work(connection, attempt);
    this.#counts.done++;
    this.#counts.durationMs += performance.now() - start;
    return result;
  }

  /**
   * A server process outlives its client, and one that waits for a synchronous standby may do so for ever. A lane leaves
   * one behind at most: before that one has ended nothing is sent, which would wait behind it.
   */
  async #usableConnection(limit: Limit): Promise<Connection> {
    const connection = await this.#currentConnection(limit);
    if (this.#abandoned === undefined) return connection;
    if (await stillWorks(this.#abandoned, connection)) throw new PostgresFailure("ABANDONED");
    this.#abandoned = undefined;
    return connection;
  }

  async #currentConnection({ deadline, isLate }: Limit): Promise<Connection> {
    if (this.#connection?.isOpen() === true) return this.#connection;
    this.#disconnect();
    if (this.#isClosed) throw new PostgresFailure("DISPOSED");
    const opened = await this.#connect(deadline - performance.now());
    if (isLate() || this.#isClosed) {
      // Another piece of work may have begun in the meantime.
      opened.close();
      throw new PostgresFailure(this.#isClosed ? "DISPOSED" : "DEADLINE");
    }
    if (this.#wasConnected) this.#counts.reconnections++;
    this.#wasConnected = true;
    this.#connection = opened;
    return opened;
  }

  /** Returns where the work is to be done again. */
  async #recover(error: unknown, attempt: number, deadline: number): Promise<void> {
    const remedy = remedyFor(error);
    if (remedy !== "repeat") this.#disconnect();
    if (remedy === "fault") throw error;
    const pauseMs = backoffMs(attempt);
    if (remedy === "refuse" || performance.now() + pauseMs >= deadline) throw unavailable(error);
    await pause(pauseMs);
  }
}

/** How long the server may take to say whether it still works on what was given up, in milliseconds. */
const SETTLE_TIMEOUT_MS = 1_000;

interface Limit extends LaneLimit {
  /** Whether it was given up. */
  readonly isLate: () => boolean;
}

function beforeDeadline<Result>(deadline: number, begin: (isLate: () => boolean) => Promise<Result>): Promise<Result> {
  let isLate = false;
  return withDeadline(
    begin(() => isLate),
    deadline - performance.now(),
    () => {
      isLate = true;
      throw new PostgresFailure("DEADLINE");
    },
  );
}
