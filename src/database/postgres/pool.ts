import { backoffMs, pause } from "../../async/timers.ts";
import { startDeadline, withDeadline } from "../../async/deadline.ts";
import type { DatabaseMetric } from "../database.ts";
import type { Connection } from "./connection.ts";
import { codeOf, PostgresFailure, remedyFor, unavailable } from "./errors.ts";
import type { PostgresHost } from "./url.ts";

/** Work to run on a connection. `attempt` counts from 0; a later attempt may find the effects of an earlier one. */
export type Work<Result> = (connection: Connection, attempt: number) => Promise<Result>;

/** How a {@linkcode Pool} connects. */
export interface PoolOptions {
  /** How many pieces of work may be in flight at once, each on its own connection. */
  readonly size: number;
  /** Opens a connection within a time limit, in milliseconds. */
  readonly connect: (timeoutMs: number) => Promise<Connection>;
  /** Called with a server that did not reply to a statement within a second. @default does nothing */
  readonly onSilence?: (host: PostgresHost) => void;
  /** The server ends every statement within this time, in milliseconds. No later reply comes. @default never */
  readonly replyLimitMs?: number | undefined;
}

/** How long a server may take to reply before another connection is tried, in milliseconds. */
const OVERDUE_MS = 1_000;
/** How long after a reply a connection is used without checking it, in milliseconds. */
const FRESH_MS = 5_000;
/** The maximum age of a connection, in milliseconds: a new one sees changes of the server's settings and of DNS. */
const MAX_AGE_MS = 600_000;
/** After this time, in milliseconds, only a commit that waits for a standby can still be running on the server. */
const STATEMENT_MS = 30_000;
/** The longest pause after a failure to connect, in milliseconds, give or take half of it. */
const LONGEST_PAUSE_MS = 1_300;

/**
 * The state of an open connection.
 * - `checking`: it has been silent, and makes a round trip before it is used.
 * - `overdue`: the server has not replied for a second, or the caller has given up. It stays open until the reply comes.
 */
type State =
  | { readonly name: "idle" | "checking" | "busy" }
  | { readonly name: "overdue"; readonly since: number; readonly isGivenUp: boolean };

interface Slot {
  readonly connection: Connection;
  readonly openedAt: number;
  state: State;
}

/** Work that waits for a connection until a deadline, by `performance.now()`. */
interface Waiting {
  readonly deadline: number;
  readonly resolve: (slot: Slot) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Connections to the database, each with one piece of work in flight. Waiting work takes the first idle connection: if the
 * server accepts no more of them, or a new one hangs, the open ones serve all.
 *
 * No statement is cancelled: PostgreSQL would report success for a commit that waits for a synchronous standby. A
 * connection whose caller has given up stays open, because the statement would continue on the server, uncounted. A pool
 * has at most twice as many connections as its size, which bounds the statements left behind on the server.
 */
export class Pool {
  /** Connections opened to replace a lost one, further attempts at a piece of work, and those done with their duration. */
  readonly counts = { reconnections: 0, retries: 0, done: 0, durationMs: 0 };
  readonly #options: PoolOptions;
  readonly #slots = new Set<Slot>();
  readonly #waiting = new Set<Waiting>();
  #connecting = 0;
  /** How many lost connections are not replaced yet. */
  #lost = 0;
  /** How often connecting failed since it last succeeded, and the last reason. */
  #failures = 0;
  #lastFailure: unknown;
  /** When a connection was last opened although no work waited. */
  #scoutedAt = Number.NEGATIVE_INFINITY;
  /** Since when a server is silent. A connection without a later reply is checked before it is used. */
  #silentSince = Number.NEGATIVE_INFINITY;
  /** The latest start of any work that succeeded. */
  #succeeded = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /**
   * Runs a piece of work. It is repeated if that is safe and time allows, on another connection if its own is lost.
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
        const pauseMs = backoffMs(attempt);
        if (remedy === "refuse" || performance.now() + pauseMs >= deadline) throw unavailable(error);
        await pause(pauseMs);
      }
      this.counts.retries++;
    }
  }

  /** Opens the first connection within a time limit, in milliseconds. */
  async connect(timeoutMs: number): Promise<void> {
    this.#release(await this.#acquire(performance.now() + timeoutMs));
  }

  /** How many connections are open. */
  get connections(): number {
    return [...this.#slots].filter(({ connection }) => connection.isOpen()).length;
  }

  /** How many connections have work in flight, even if its caller has given up, or are being opened. */
  get busy(): number {
    return this.#count("checking") + this.#count("busy") + this.#count("overdue") + this.#connecting;
  }

  /** Closes every connection. Work in flight rejects, and is not repeated. */
  close(): void {
    this.#isClosed = true;
    this.#closeAll();
    this.#reject(new PostgresFailure("DISPOSED"));
  }

  #count(name: State["name"]): number {
    let count = 0;
    for (const { state } of this.#slots) if (state.name === name) count++;
    return count;
  }

  /** How many connections can take work, now or soon. */
  #usable(): number {
    return this.#slots.size - this.#count("overdue") + this.#connecting;
  }

  #isFull(): boolean {
    return this.#slots.size + this.#connecting >= 2 * this.#options.size;
  }

  #acquire(deadline: number): Promise<Slot> {
    if (this.#isClosed) throw unavailable(new PostgresFailure("DISPOSED"));
    const { promise, resolve, reject } = Promise.withResolvers<Slot>();
    const entry = { deadline, resolve, reject };
    this.#waiting.add(entry);
    this.#pump();
    if (!this.#waiting.has(entry)) return promise;
    return withDeadline(promise, deadline - performance.now(), () => {
      this.#waiting.delete(entry);
      throw unavailable(this.#lastFailure ?? new PostgresFailure("DEADLINE"));
    });
  }

  /** Runs after each change. Assigns work to idle connections, and opens more for the rest. */
  #pump(): void {
    this.#closeUseless();
    if (this.#waiting.size === 0) return;
    const idle = [...this.#slots].filter(({ state }) => state.name === "idle");
    // Most recently used first, so that the others can age.
    for (const slot of idle.toSorted((one, other) => other.connection.repliedAt() - one.connection.repliedAt())) {
      const [next] = this.#waiting;
      if (next === undefined) break;
      // Checks all silent ones at once: if the network dropped one, it may have dropped them all.
      if (!this.#isFresh(slot)) {
        void this.#check(slot);
        continue;
      }
      this.#waiting.delete(next);
      slot.state = { name: "busy" };
      next.resolve(slot);
    }
    const arriving = this.#count("checking") + this.#connecting;
    for (let missing = this.#waiting.size - arriving; missing > 0 && this.#mayOpen(); missing--) void this.#open();
  }

  /** Whether to open another one: while connecting fails, one at a time. */
  #mayOpen(): boolean {
    const isFailing = this.#failures > 0 && this.#connecting > 0;
    const hasRoom = this.#usable() < this.#options.size && !this.#isFull();
    return hasRoom && !isFailing && this.#patienceMs() > 0;
  }

  /**
   * Closes lost connections. It also closes a connection whose caller has given up, if later work has succeeded and either
   * its place is needed or the server would have ended the statement. Then no commit waits for a standby: only the reply was
   * lost.
   */
  #closeUseless(): void {
    const { replyLimitMs = Number.POSITIVE_INFINITY } = this.#options;
    const now = performance.now();
    for (const slot of this.#slots) {
      const { connection, state } = slot;
      if (!connection.isOpen()) this.#close(slot);
      if (state.name !== "overdue" || !state.isGivenUp) continue;
      const isLost = state.since < this.#succeeded && (this.#isFull() || now - state.since > STATEMENT_MS);
      if (isLost || now - state.since > replyLimitMs) this.#close(slot);
    }
  }

  #isFresh({ connection }: Slot): boolean {
    return connection.repliedAt() > Math.max(this.#silentSince, performance.now() - FRESH_MS);
  }

  async #check(slot: Slot): Promise<void> {
    slot.state = { name: "checking" };
    try {
      await withDeadline(slot.connection.query("SELECT 1"), OVERDUE_MS, () => {
        this.#options.onSilence?.(slot.connection.host);
        throw new PostgresFailure("DEADLINE");
      });
      slot.state = { name: "idle" };
    } catch {
      this.#close(slot);
    }
    this.#pump();
  }

  /** Connects, and retries as long as work waits for it. */
  async #open(): Promise<void> {
    this.#connecting++;
    for (let patience = this.#patienceMs(); patience > 0; patience = this.#patienceMs()) {
      const began = performance.now();
      try {
        this.#admit(await this.#options.connect(patience));
        break;
      } catch (error) {
        this.#lastFailure = error;
        if (isFinal(error) && this.#usable() === this.#connecting) this.#reject(error);
        await pause(Math.max(0, backoffMs(this.#failures++, LONGEST_PAUSE_MS) - (performance.now() - began)));
      }
    }
    this.#connecting--;
    this.#pump();
  }

  /** How long a new connection is worth waiting for, in milliseconds: work waits, or a server is silent. */
  #patienceMs(): number {
    if (this.#isClosed) return 0;
    const isSilent = [...this.#slots].some(({ state }) => state.name === "overdue" && !state.isGivenUp);
    const now = performance.now();
    return Math.max(isSilent ? 2 * OVERDUE_MS : 0, ...[...this.#waiting].map(({ deadline }) => deadline - now));
  }

  #admit(connection: Connection): void {
    if (this.#isClosed) return connection.close();
    this.#failures = 0;
    this.#lastFailure = undefined;
    // Another server has taken over: work in flight on the old one is repeated here.
    for (const slot of this.#slots) if (slot.connection.host !== connection.host) this.#close(slot);
    if (this.#lost > 0) {
      this.#lost--;
      this.counts.reconnections++;
    }
    this.#slots.add({ connection, openedAt: performance.now(), state: { name: "idle" } });
  }

  async #attempt<Result>(slot: Slot, work: Work<Result>, attempt: number, deadline: number): Promise<Result> {
    const began = performance.now();
    if (began >= deadline) {
      this.#release(slot);
      throw new PostgresFailure("DEADLINE");
    }
    const done = this.#finish(slot, work(slot.connection, attempt), began);
    const stopWatching = this.#watch(slot, began);
    try {
      return await withDeadline(done, deadline - began, () => {
        this.#becomeOverdue(slot, began, true);
        throw new PostgresFailure("DEADLINE");
      });
    } finally {
      stopWatching();
    }
  }

  /** Applies the result to the connection, even if the caller has given up. */
  async #finish<Result>(slot: Slot, working: Promise<Result>, began: number): Promise<Result> {
    try {
      const result = await working;
      this.#succeeded = Math.max(this.#succeeded, began);
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
      if (silentMs >= OVERDUE_MS) this.#becomeOverdue(slot, began, false);
      else stop = startDeadline(Math.ceil(OVERDUE_MS - silentMs), check);
    };
    let stop = startDeadline(OVERDUE_MS, check);
    return () => stop();
  }

  /** Makes room for another connection, and opens it: this one may be dead. */
  #becomeOverdue(slot: Slot, began: number, isGivenUp: boolean): void {
    if (!this.#slots.has(slot)) return;
    const now = performance.now();
    this.#silentSince = Math.max(this.#silentSince, began, slot.connection.repliedAt());
    slot.state = { name: "overdue", since: now, isGivenUp };
    this.#options.onSilence?.(slot.connection.host);
    this.#pump();
    if (isGivenUp || this.#connecting > 0 || this.#isFull() || now - this.#scoutedAt < 2 * OVERDUE_MS) return;
    this.#scoutedAt = now;
    void this.#open();
  }

  #release(slot: Slot): void {
    const isSpare = slot.state.name === "overdue" && this.#usable() >= this.#options.size;
    const isOld = performance.now() - slot.openedAt > MAX_AGE_MS;
    if (isSpare || isOld) this.#retire(slot);
    else slot.state = { name: "idle" };
    this.#pump();
  }

  /** Closes a healthy connection. */
  #retire(slot: Slot): void {
    if (this.#slots.delete(slot)) slot.connection.close();
  }

  /** Closes a lost connection. */
  #close(slot: Slot): void {
    if (!this.#slots.has(slot)) return;
    this.#retire(slot);
    this.#lost++;
  }

  #closeAll(): void {
    for (const slot of this.#slots) this.#close(slot);
  }

  #reject(error: unknown): void {
    const reason = remedyFor(error) === "fault" ? error : unavailable(error);
    for (const { reject } of this.#waiting) reject(reason);
    this.#waiting.clear();
  }
}

/** Whether retrying to connect is pointless: a setting, or a bug. */
function isFinal(error: unknown): boolean {
  return remedyFor(error) === "fault" || codeOf(error) === "UNSAFE";
}

/** The metrics of several pools together. */
export function poolMetrics(pools: readonly Pool[]): readonly DatabaseMetric[] {
  const sum = (number: (pool: Pool) => number) => pools.reduce((total, pool) => total + number(pool), 0);
  const metric = (type: "counter" | "gauge", name: string, help: string, value: number): DatabaseMetric => ({
    name: `plant_store_postgres_${name}`,
    help,
    type,
    value,
  });
  const count = (name: keyof Pool["counts"]) => sum(({ counts }) => counts[name]);
  const open = sum(({ connections }) => connections);
  const busy = sum((pool) => pool.busy);
  return [
    metric("gauge", "connections", "Open connections to PostgreSQL", open),
    metric("gauge", "connections_busy", "Connections with a statement in flight or given up, or being opened", busy),
    metric("counter", "reconnections_total", "Connections opened in place of a lost one", count("reconnections")),
    metric("counter", "retries_total", "Further attempts at a piece of work after a failed one", count("retries")),
    metric("counter", "statements_total", "Batches, probes and other pieces of work done", count("done")),
    metric("counter", "statement_seconds_total", "Total duration of those", count("durationMs") / 1_000),
  ];
}
