import { startDeadline, withDeadline } from "../../async/deadline.ts";
import { backoffMs, pause } from "../../async/timers.ts";
import type { DatabaseMetric } from "../database.ts";
import { type Connection, STATEMENT_TIMEOUT_MS } from "./connection.ts";
import { codeOf, PostgresFailure, remedyFor, unavailable } from "./errors.ts";
import type { PostgresHost } from "./url.ts";

/**
 * Work to run on a connection. `attempt` counts from 0; a later attempt may find the effects of an
 * earlier one.
 */
export type Work<Result> = (connection: Connection, attempt: number) => Promise<Result>;

/** How a {@linkcode Pool} connects. */
export interface PoolOptions {
  /** How many pieces of work may be in flight at once, each on its own connection. */
  readonly size: number;
  /** Opens a connection. It settles in any case: whoever connects has a time limit. */
  readonly connect: () => Promise<Connection>;
  /**
   * Called with a server that did not reply to a statement within a second.
   *
   * @default does nothing
   */
  readonly onSilence?: (host: PostgresHost) => void;
  /**
   * The server ends every statement within this time, in milliseconds. No later reply comes.
   *
   * @default never
   */
  readonly replyLimitMs?: number | undefined;
}

/** How long a server may take to reply before another connection is tried, in milliseconds. */
const OVERDUE_MS = 1_000;
/** How long after a reply a connection is used without checking it, in milliseconds. */
const FRESH_MS = 5_000;
/**
 * The maximum age of a connection, in milliseconds: a new one sees changes of the server's settings
 * and of DNS.
 */
const MAX_AGE_MS = 600_000;
/** The longest pause after a failure to connect, in milliseconds, give or take half of it. */
const LONGEST_PAUSE_MS = 1_300;
/** The time between two connections that are opened beside overdue ones, in milliseconds. */
const BESIDE_INTERVAL_MS = 2_000;

/**
 * What an open connection does:
 *
 * - `idle`: it waits for work.
 * - `checking`: it waited for long, or a server became silent meanwhile. It makes a round trip, and
 *   is `idle` again or closed.
 * - `busy`: it has work in flight, and the server replies to each statement within a second.
 * - `overdue`: the server has not replied to its work for a second. Another connection may be
 *   opened in its place.
 * - `timed out`: the caller of its work waits no longer. The statement goes on, so the connection
 *   stays open.
 *
 * When its work ends, in whatever state, it is `idle` or closed.
 */
type SlotState = "idle" | "checking" | "busy" | "overdue" | "timed out";

/** An open connection, and what it does. */
interface Slot {
  readonly connection: Connection;
  readonly openedAt: number;
  state: SlotState;
  /** When it entered this state. */
  since: number;
}

function enter(slot: Slot, state: SlotState): void {
  slot.state = state;
  slot.since = performance.now();
}

/** Work that waits for a connection. */
type Waiting = PromiseWithResolvers<Slot>;

/**
 * Connections to the database, each with one piece of work in flight. Waiting work takes the first
 * idle connection: if the server accepts no more of them, or a new one hangs, the open ones serve
 * all.
 *
 * A server that does not reply:
 *
 * 1. After a second the connection is `overdue`. The pool opens another one, which may lead to a
 *    server that has taken over. Connections that have not replied since are checked before use.
 * 2. If the new connection leads to another server, the pool closes those to the old one. Their
 *    work is repeated on the new server.
 * 3. At its deadline the work rejects, and the connection is `timed out`.
 *
 * No statement is cancelled: PostgreSQL would report success for a commit that waits for a
 * synchronous standby. A connection whose work timed out stays open: the statement would continue
 * on the server, and nothing would count it. A pool has at most twice as many connections as its
 * size, which bounds the statements left behind on the server.
 *
 * Times are those of `performance.now()`.
 */
export class Pool {
  /**
   * Connections opened to replace a lost one, further attempts at a piece of work, and those done
   * with their duration.
   */
  readonly counts = { reconnections: 0, retries: 0, done: 0, durationMs: 0 };

  readonly #options: PoolOptions;
  readonly #slots = new Set<Slot>();
  readonly #waiting = new Set<Waiting>();
  #isClosed = false;

  /** How many connections are being opened. */
  #connecting = 0;
  /** How often connecting failed since it last succeeded, and the last reason. */
  #connectFailures = 0;
  #lastConnectFailure: unknown;
  /** How many lost connections are not replaced yet. */
  #lost = 0;

  /**
   * Since when a server is silent. A connection without a later reply is checked before it is used.
   */
  #silentSince = Number.NEGATIVE_INFINITY;
  /** When a connection was last opened beside an overdue one. */
  #openedBesideAt = Number.NEGATIVE_INFINITY;
  /** When the newest piece of work began that has succeeded. */
  #newestSuccessBeganAt = Number.NEGATIVE_INFINITY;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /**
   * Runs a piece of work. It is repeated if that is safe and time allows, on another connection if
   * its own is lost.
   *
   * @param timeoutMs The time limit, in milliseconds, including the wait for a connection.
   * @throws {PlantStoreError} `storage_unavailable`. The work may or may not have been committed.
   */
  async run<Result>(work: Work<Result>, timeoutMs: number): Promise<Result> {
    const deadline = performance.now() + timeoutMs;

    for (let attempt = 0; ; attempt++) {
      const slot = await this.#acquire(deadline);
      try {
        return await this.#attempt(slot, work, attempt, deadline);
      } catch (error) {
        const remedy = remedyFor(error);
        if (remedy === "fault") throw error;
        if (remedy === "refuse") throw unavailable(error);

        const pauseMs = backoffMs(attempt);
        if (performance.now() + pauseMs >= deadline) throw unavailable(error);
        await pause(pauseMs);
      }

      this.counts.retries++;
    }
  }

  /** How many connections are open. */
  get connections(): number {
    return [...this.#slots].filter(({ connection }) => connection.isOpen()).length;
  }

  /** How many connections have work in flight, even if it timed out, or are being opened. */
  get busy(): number {
    return this.#slots.size - this.#count("idle") + this.#connecting;
  }

  /** Closes every connection. Work in flight rejects, and is not repeated. */
  close(): void {
    this.#isClosed = true;
    this.#closeAll();
    this.#rejectWaiting(new PostgresFailure("DISPOSED"));
  }

  #count(wanted: SlotState): number {
    let count = 0;
    for (const { state } of this.#slots) if (state === wanted) count++;
    return count;
  }

  /** How many connections can take work, now or soon. */
  #usable(): number {
    return this.#slots.size - this.#count("overdue") - this.#count("timed out") + this.#connecting;
  }

  /** Whether no more connections may be opened, whatever the open ones do. */
  #isFull(): boolean {
    return this.#slots.size + this.#connecting >= 2 * this.#options.size;
  }

  /** Waits for a connection until the deadline. */
  #acquire(deadline: number): Promise<Slot> {
    if (this.#isClosed) throw unavailable(new PostgresFailure("DISPOSED"));

    const entry = Promise.withResolvers<Slot>();
    this.#waiting.add(entry);
    this.#assign();
    if (!this.#waiting.has(entry)) return entry.promise;

    return withDeadline(entry.promise, deadline - performance.now(), () => {
      this.#waiting.delete(entry);
      throw unavailable(this.#lastConnectFailure ?? new PostgresFailure("DEADLINE"));
    });
  }

  /** Runs after each change. Assigns work to idle connections, and opens more for the rest. */
  #assign(): void {
    this.#closeUseless();
    if (this.#waiting.size === 0) return;

    // Most recently used first, so that the others can age.
    const idle = [...this.#slots]
      .filter(({ state }) => state === "idle")
      .toSorted((one, other) => other.connection.repliedAt() - one.connection.repliedAt());
    const freshSince = Math.max(this.#silentSince, performance.now() - FRESH_MS);

    for (const slot of idle) {
      const [next] = this.#waiting;
      if (next === undefined) break;

      // Checks all silent ones at once: if the network dropped one, it may have dropped them all.
      if (slot.connection.repliedAt() <= freshSince) {
        void this.#check(slot);
        continue;
      }

      this.#waiting.delete(next);
      enter(slot, "busy");
      next.resolve(slot);
    }

    const arriving = this.#count("checking") + this.#connecting;
    for (let missing = this.#waiting.size - arriving; missing > 0 && this.#mayOpen(); missing--)
      void this.#open();
  }

  /** Whether to open another one for waiting work: while connecting fails, one at a time. */
  #mayOpen(): boolean {
    const isFailing = this.#connectFailures > 0 && this.#connecting > 0;
    return !isFailing && this.#usable() < this.#options.size && !this.#isFull();
  }

  /** Closes connections that the server has closed, and those whose reply will not come. */
  #closeUseless(): void {
    for (const slot of this.#slots) {
      if (!slot.connection.isOpen() || this.#hasLostReply(slot)) this.#close(slot);
    }
  }

  /**
   * Whether the reply to work that timed out will not come. If later work has succeeded, no commit
   * waits for a standby: only the reply was lost. Such a connection is kept until its place is
   * needed, or until the server would have ended the statement.
   */
  #hasLostReply({ state, since }: Slot): boolean {
    if (state !== "timed out") return false;

    const { replyLimitMs = Number.POSITIVE_INFINITY } = this.#options;
    const silentMs = performance.now() - since;
    if (silentMs > replyLimitMs) return true;

    const isOlder = since < this.#newestSuccessBeganAt;
    return isOlder && (this.#isFull() || silentMs > STATEMENT_TIMEOUT_MS);
  }

  /** Makes a round trip on a connection that may be dead. */
  async #check(slot: Slot): Promise<void> {
    enter(slot, "checking");
    try {
      await withDeadline(slot.connection.query("SELECT 1"), OVERDUE_MS, () => {
        this.#options.onSilence?.(slot.connection.host);
        throw new PostgresFailure("DEADLINE");
      });
      enter(slot, "idle");
    } catch {
      this.#close(slot);
    }
    this.#assign();
  }

  /** Connects, and retries as long as another connection is wanted. */
  async #open(): Promise<void> {
    this.#connecting++;

    while (this.#isWanted()) {
      const began = performance.now();
      try {
        this.#add(await this.#options.connect());
        break;
      } catch (error) {
        this.#lastConnectFailure = error;

        // A setting or a bug does not go away: without another connection, waiting is pointless.
        const isFinal = codeOf(error) === "UNSAFE" || remedyFor(error) === "fault";
        const hasNoOther = this.#usable() === this.#connecting;
        if (isFinal && hasNoOther) this.#rejectWaiting(error);

        // Between the beginnings of two attempts: one that hung needs no pause after it.
        const elapsedMs = performance.now() - began;
        await pause(Math.max(0, backoffMs(this.#connectFailures++, LONGEST_PAUSE_MS) - elapsedMs));
      }
    }

    this.#connecting--;
    this.#assign();
  }

  /** Whether another connection is wanted: work waits, or the server is silent. */
  #isWanted(): boolean {
    return !this.#isClosed && (this.#waiting.size > 0 || this.#count("overdue") > 0);
  }

  /** Takes a new connection into the pool. */
  #add(connection: Connection): void {
    if (this.#isClosed) return connection.close();

    this.#connectFailures = 0;
    this.#lastConnectFailure = undefined;

    // Another server has taken over: work in flight on the old one is repeated here.
    for (const slot of this.#slots) {
      if (slot.connection.host !== connection.host) this.#close(slot);
    }

    if (this.#lost > 0) {
      this.#lost--;
      this.counts.reconnections++;
    }

    const now = performance.now();
    this.#slots.add({ connection, openedAt: now, state: "idle", since: now });
  }

  /** Runs a piece of work on a connection, once. */
  async #attempt<Result>(
    slot: Slot,
    work: Work<Result>,
    attempt: number,
    deadline: number,
  ): Promise<Result> {
    const began = performance.now();
    if (began >= deadline) {
      this.#release(slot);
      throw new PostgresFailure("DEADLINE");
    }

    const done = this.#finish(slot, work(slot.connection, attempt), began);
    const stopWatching = this.#watch(slot, began);

    try {
      return await withDeadline(done, deadline - began, () => {
        this.#noteSilence(slot, began, "timed out");
        throw new PostgresFailure("DEADLINE");
      });
    } finally {
      stopWatching();
    }
  }

  /** Applies the result to the connection, even if the work timed out. */
  async #finish<Result>(slot: Slot, working: Promise<Result>, began: number): Promise<Result> {
    try {
      const result = await working;

      this.#newestSuccessBeganAt = Math.max(this.#newestSuccessBeganAt, began);
      this.counts.done++;
      this.counts.durationMs += performance.now() - began;
      return result;
    } catch (error) {
      if (remedyFor(error) !== "repeat") this.#close(slot);
      // The server's settings are the same on all connections.
      if (codeOf(error) === "UNSAFE") this.#closeAll();
      throw error;
    } finally {
      this.#release(slot);
    }
  }

  /** Watches whether the server replies to each statement of a piece of work within a second. */
  #watch(slot: Slot, began: number): () => void {
    const check = () => {
      const silentMs = performance.now() - Math.max(began, slot.connection.repliedAt());
      if (silentMs < OVERDUE_MS) {
        stop = startDeadline(Math.ceil(OVERDUE_MS - silentMs), check);
        return;
      }
      this.#noteSilence(slot, began, "overdue");
    };
    let stop = startDeadline(OVERDUE_MS, check);
    return () => stop();
  }

  /**
   * Makes room for another connection: this one may be dead, and so may all that have not replied
   * since.
   */
  #noteSilence(slot: Slot, began: number, state: "overdue" | "timed out"): void {
    if (!this.#slots.has(slot)) return;

    enter(slot, state);
    this.#silentSince = Math.max(this.#silentSince, began, slot.connection.repliedAt());
    this.#options.onSilence?.(slot.connection.host);

    this.#assign();
    if (state === "overdue") this.#openBeside();
  }

  /**
   * Opens a connection beside overdue ones, even if no other work waits: it may lead to a server
   * that has taken over.
   */
  #openBeside(): void {
    const isRecent = performance.now() - this.#openedBesideAt < BESIDE_INTERVAL_MS;
    if (isRecent || this.#connecting > 0 || this.#isFull()) return;

    this.#openedBesideAt = performance.now();
    void this.#open();
  }

  /** Takes a connection back whose work has ended. */
  #release(slot: Slot): void {
    // It was replaced while its server was silent.
    const isSpare = slot.state !== "busy" && this.#usable() >= this.#options.size;
    const isOld = performance.now() - slot.openedAt > MAX_AGE_MS;

    enter(slot, "idle");
    if (isSpare || isOld) this.#close(slot, { isLost: false });
    this.#assign();
  }

  /** Closes a connection. One that is not lost needs no other in its place. */
  #close(slot: Slot, { isLost = true } = {}): void {
    if (!this.#slots.delete(slot)) return;

    slot.connection.close();
    if (isLost) this.#lost++;
  }

  #closeAll(): void {
    for (const slot of this.#slots) this.#close(slot);
  }

  /** Rejects the work that waits for a connection. */
  #rejectWaiting(error: unknown): void {
    const reason = remedyFor(error) === "fault" ? error : unavailable(error);
    for (const { reject } of this.#waiting) reject(reason);
    this.#waiting.clear();
  }
}

/** The value and the help of each metric. */
const METRICS: Readonly<Record<string, readonly [value: (pool: Pool) => number, help: string]>> = {
  connections: [(pool) => pool.connections, "Open connections to PostgreSQL"],
  connections_busy: [
    (pool) => pool.busy,
    "Connections with a statement in flight, even if it timed out, or being opened",
  ],
  reconnections_total: [
    ({ counts }) => counts.reconnections,
    "Connections opened in place of a lost one",
  ],
  retries_total: [
    ({ counts }) => counts.retries,
    "Further attempts at a piece of work after a failed one",
  ],
  statements_total: [({ counts }) => counts.done, "Batches, probes and other pieces of work done"],
  statement_seconds_total: [({ counts }) => counts.durationMs / 1_000, "Total duration of those"],
};

/** The metrics of several pools together. */
export function poolMetrics(pools: readonly Pool[]): readonly DatabaseMetric[] {
  return Object.entries(METRICS).map(([name, [valueOf, help]]) => ({
    name: `plant_store_postgres_${name}`,
    help,
    type: name.endsWith("_total") ? "counter" : "gauge",
    value: pools.reduce((sum, pool) => sum + valueOf(pool), 0),
  }));
}
