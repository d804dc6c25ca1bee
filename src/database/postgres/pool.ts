import { backoffMs, pause, startDeadline, withDeadline } from "../../async/timers.ts";
import type { DatabaseMetric } from "../adapter.ts";
import type { Connection } from "./connection.ts";
import { consequencesOf, PostgresFailure, rejectionOf } from "./errors.ts";
import {
  type ConnectionFacts,
  type ConnectionState,
  isConnectionWanted,
  nextPoolStep,
  type PoolFacts,
  usable,
} from "./next_pool_step.ts";
import type { PostgresHost } from "./url.ts";

/**
 * Work to run on a connection. `attempt` counts from 0. An earlier attempt may have been committed.
 */
export type Work<Result> = (connection: Connection, attempt: number) => Promise<Result>;

/** How a {@linkcode Pool} connects. */
export interface PoolOptions {
  /** How many pieces of work may be in flight at once, each on its own connection. */
  readonly size: number;

  /** Opens a connection. Must settle within a time limit of its own. */
  readonly connect: () => Promise<Connection>;

  /**
   * Returns the server in use, which all pools of a database share. A connection to any other server is
   * closed before its next use, or while its work is overdue.
   */
  readonly current: () => PostgresHost | undefined;

  /**
   * Called with a server that has not replied to a statement for a second.
   *
   * @default does nothing
   */
  readonly onSilence?: (host: PostgresHost) => void;

  /**
   * Finds out, over another connection, why a server does not reply. Until other work succeeds, work
   * that times out rejects with the answer. Never rejects.
   *
   * @default `DEADLINE`
   */
  readonly explainSilence?: () => Promise<PostgresFailure | undefined>;

  /**
   * The statement timeout of the server, in milliseconds. After it, no reply can come.
   *
   * @default never
   */
  readonly replyLimitMs?: number | undefined;
}

/** How long a server may take to reply before another connection is tried, in milliseconds. */
const OVERDUE_MS = 1_000;
/** The longest pause after a failure to connect, in milliseconds, give or take half of it. */
const LONGEST_PAUSE_MS = 1_300;

/** An open connection and its state. */
class PooledConnection implements ConnectionFacts {
  readonly connection: Connection;
  readonly openedAt = performance.now();
  state: ConnectionState = "idle";
  since = this.openedAt;

  constructor(connection: Connection) {
    this.connection = connection;
  }

  get repliedAt(): number {
    return this.connection.repliedAt();
  }

  get isOpen(): boolean {
    return this.connection.isOpen();
  }

  get host(): PostgresHost {
    return this.connection.host;
  }

  enter(state: ConnectionState): void {
    this.state = state;
    this.since = performance.now();
  }
}

/** Work that waits for a connection. */
type Waiting = PromiseWithResolvers<PooledConnection>;

/**
 * A pool of connections to the database. Each connection has at most one piece of work in flight.
 * Waiting work takes the first connection that is idle. So the open connections do all the work if the
 * server accepts no more of them, or a new one hangs. {@linkcode nextPoolStep} decides what to do, and
 * {@linkcode consequencesOf} what an error means; the pool carries it out.
 *
 * If a server falls silent, this happens, counted from the statement that gets no reply:
 *
 * - After 1 s the connection is `overdue`. Other hosts are tried before its host. Another connection is
 *   opened beside it. Idle connections that have had no reply since are checked before use.
 * - If the new connection leads to another server, every pool closes its connections to the old one,
 *   and the batch is repeated on the new one. Otherwise the new connection takes waiting work.
 * - At the deadline of the work, the work rejects, and its connection is `timed out`.
 * - 30 s later that connection is closed, if later work has succeeded.
 *
 * The pool cancels no statement: PostgreSQL would report success for a cancelled commit that waits for a
 * synchronous standby. It keeps a connection whose work timed out, because the statement continues on
 * the server and must be counted. A pool has at most twice as many connections as its size, which limits
 * such statements.
 *
 * Times are those of `performance.now()`.
 */
export class Pool {
  /**
   * Counts connections that replaced a lost one, repeated attempts, and completed work with its total
   * duration.
   */
  readonly counts = { reconnections: 0, retries: 0, done: 0, durationMs: 0 };

  readonly #options: PoolOptions;
  /** True from `close()` on. */
  #isClosed = false;

  // Open connections, and the work that waits for one. #proceed() brings them together.

  /** In the order of opening. #open() adds, #close() removes. */
  readonly #connections: PooledConnection[] = [];
  /** In the order of arrival. #acquire() adds, #assign() removes; so does a deadline. */
  readonly #waiting = new Set<Waiting>();

  // Connecting. #open() and #connect() own these.

  /** How many connections are being opened. */
  #connecting = 0;
  /** When a connection was last opened beside an overdue one. */
  #openedBesideAt = Number.NEGATIVE_INFINITY;
  /** How often connecting failed since it last succeeded, and the last reason. */
  #connectFailures = 0;
  #lastConnectFailure: unknown;
  /** How many lost connections are not replaced yet. #close() adds to it. */
  #lost = 0;

  // Results of the work in flight. #finish() and #noteSilence() own these.

  /** When a server fell silent. A connection without a later reply is checked before it is used. */
  #silentSince = Number.NEGATIVE_INFINITY;
  /** The latest start of any work that succeeded. */
  #newestSuccessBeganAt = Number.NEGATIVE_INFINITY;
  /** Why a server is silent, if known; and whether `explainSilence` is running. */
  #explanation: PostgresFailure | undefined;
  #isExplaining = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /**
   * Runs a piece of work. Repeats it if that is safe and there is time, on another connection if its
   * own was lost.
   *
   * @param timeoutMs The time limit, in milliseconds, including the wait for a connection.
   * @throws {PlantStoreError} `storage_unavailable`. The work may or may not have been committed.
   */
  async run<Result>(work: Work<Result>, timeoutMs: number): Promise<Result> {
    const deadline = performance.now() + timeoutMs;

    for (let attempt = 0; ; attempt++) {
      const pooled = await this.#acquire(deadline);
      try {
        return await this.#attempt(pooled, work, attempt, deadline);
      } catch (error) {
        const pauseMs = backoffMs(attempt);
        const isTimeLeft = performance.now() + pauseMs < deadline;
        if (consequencesOf(error).work !== "repeat" || !isTimeLeft) throw rejectionOf(error);

        await pause(pauseMs);
      }

      this.counts.retries++;
    }
  }

  /** How many connections are open. */
  get connections(): number {
    return this.#connections.filter(({ isOpen }) => isOpen).length;
  }

  /** How many connections are being opened, or have work in flight, even if it timed out. */
  get busy(): number {
    const busy = this.#connections.filter(({ state }) => state !== "idle");
    return busy.length + this.#connecting;
  }

  /** Closes every connection. Work in flight rejects, and is not repeated. */
  close(): void {
    this.#isClosed = true;
    this.#closeAll();
    this.#rejectWaiting(new PostgresFailure("DISPOSED"));
  }

  /** Waits for a connection until the deadline. */
  #acquire(deadline: number): Promise<PooledConnection> {
    if (this.#isClosed) throw rejectionOf(new PostgresFailure("DISPOSED"));

    const entry = Promise.withResolvers<PooledConnection>();
    this.#waiting.add(entry);
    this.#proceed();
    if (!this.#waiting.has(entry)) return entry.promise;

    return withDeadline(entry.promise, deadline - performance.now(), () => {
      this.#waiting.delete(entry);
      throw rejectionOf(this.#lastConnectFailure ?? this.#timedOut());
    });
  }

  /** Runs a piece of work on a connection, once. */
  async #attempt<Result>(
    pooled: PooledConnection,
    work: Work<Result>,
    attempt: number,
    deadline: number,
  ): Promise<Result> {
    const began = performance.now();
    if (began >= deadline) {
      this.#release(pooled);
      throw new PostgresFailure("DEADLINE");
    }

    const done = this.#finish(pooled, work(pooled.connection, attempt), began);
    const stopWatching = this.#watch(pooled, began);

    try {
      return await withDeadline(done, deadline - began, () => {
        this.#noteSilence(pooled, began, "timed out");
        throw this.#timedOut();
      });
    } finally {
      stopWatching();
    }
  }

  /** Waits for the work, even after its deadline, and then updates the connection and the counts. */
  async #finish<Result>(
    pooled: PooledConnection,
    working: Promise<Result>,
    began: number,
  ): Promise<Result> {
    try {
      const result = await working;

      this.#newestSuccessBeganAt = Math.max(this.#newestSuccessBeganAt, began);
      this.counts.done++;
      this.counts.durationMs += performance.now() - began;
      this.#explanation = undefined;
      return result;
    } catch (error) {
      const { connection } = consequencesOf(error);
      if (connection === "close") this.#close(pooled);
      if (connection === "close all") this.#closeAll();
      throw error;
    } finally {
      this.#release(pooled);
    }
  }

  /** Returns a connection to the pool. */
  #release(pooled: PooledConnection): void {
    pooled.enter("idle");
    this.#proceed();
  }

  /** Marks the connection as overdue if the server does not reply to a statement within a second. */
  #watch(pooled: PooledConnection, began: number): () => void {
    const check = () => {
      const silentMs = performance.now() - Math.max(began, pooled.repliedAt);
      if (silentMs < OVERDUE_MS) {
        stop = startDeadline(Math.ceil(OVERDUE_MS - silentMs), check);
        return;
      }
      this.#noteSilence(pooled, began, "overdue");
    };
    let stop = startDeadline(OVERDUE_MS, check);
    return () => stop();
  }

  /** Notes that this connection may be dead, and every other that has had no reply since. */
  #noteSilence(pooled: PooledConnection, began: number, state: "overdue" | "timed out"): void {
    if (!this.#connections.includes(pooled)) return;

    pooled.enter(state);
    this.#silentSince = Math.max(this.#silentSince, began, pooled.repliedAt);
    this.#options.onSilence?.(pooled.host);
    void this.#explain();
    this.#proceed();
  }

  /** Finds out why a server is silent, unless that is already under way. */
  async #explain(): Promise<void> {
    const { explainSilence } = this.#options;
    if (explainSilence === undefined || this.#isExplaining) return;

    this.#isExplaining = true;
    const { done } = this.counts;
    const explanation = await explainSilence();
    // Ignore the answer if work has succeeded meanwhile.
    if (done === this.counts.done) this.#explanation = explanation;
    this.#isExplaining = false;
  }

  #timedOut(): PostgresFailure {
    return this.#explanation ?? new PostgresFailure("DEADLINE");
  }

  /** Takes the next steps. Runs after each change. */
  #proceed(): void {
    for (;;) {
      const step = nextPoolStep(this.#facts());
      if (step.do === "wait") return;

      if (step.do === "open" || step.do === "openBeside") {
        void this.#open({ isBeside: step.do === "openBeside" });
        continue;
      }

      const pooled = this.#connections[step.connection] as PooledConnection;
      if (step.do === "assign") this.#assign(pooled);
      else if (step.do === "check") void this.#check(pooled);
      else this.#close(pooled, { isLost: step.do === "close" });
    }
  }

  #facts(): PoolFacts {
    const { size, replyLimitMs = Number.POSITIVE_INFINITY } = this.#options;
    return {
      now: performance.now(),
      connections: this.#connections,
      waiting: this.#waiting.size,
      size,
      connecting: this.#connecting,
      isConnectFailing: this.#connectFailures > 0,
      openedBesideAt: this.#openedBesideAt,
      host: this.#options.current(),
      silentSince: this.#silentSince,
      newestSuccessBeganAt: this.#newestSuccessBeganAt,
      replyLimitMs,
    };
  }

  /** Gives a connection to the work that waits longest. */
  #assign(pooled: PooledConnection): void {
    const [next] = this.#waiting;
    if (next === undefined) return;

    this.#waiting.delete(next);
    pooled.enter("busy");
    next.resolve(pooled);
  }

  /** Makes a round trip on a connection that may be dead. */
  async #check(pooled: PooledConnection): Promise<void> {
    pooled.enter("checking");
    try {
      await withDeadline(pooled.connection.query("SELECT 1"), OVERDUE_MS, () => {
        this.#options.onSilence?.(pooled.host);
        throw new PostgresFailure("DEADLINE");
      });
      pooled.enter("idle");
    } catch {
      this.#close(pooled);
    }
    this.#proceed();
  }

  /** Opens a connection, and gives up once none is wanted. */
  async #open({ isBeside }: { readonly isBeside: boolean }): Promise<void> {
    if (isBeside) this.#openedBesideAt = performance.now();

    this.#connecting++;
    const connection = await this.#connect();
    this.#connecting--;

    if (connection !== undefined) this.#connections.push(new PooledConnection(connection));
    // If the connection leads to another server, this closes those to the old one.
    this.#proceed();

    if (connection === undefined || this.#lost === 0) return;
    this.#lost--;
    this.counts.reconnections++;
  }

  /** Connects, and retries as long as another connection is wanted. */
  async #connect(): Promise<Connection | undefined> {
    while (!this.#isClosed && isConnectionWanted(this.#facts())) {
      const began = performance.now();
      try {
        const connection = await this.#options.connect();
        this.#connectFailures = 0;
        this.#lastConnectFailure = undefined;
        if (!this.#isClosed) return connection;

        connection.close();
      } catch (error) {
        this.#lastConnectFailure = error;

        const hasNoOther = usable(this.#connections) === 0;
        if (consequencesOf(error).isLasting && hasNoOther) this.#rejectWaiting(error);

        // The pause counts from the start of the attempt: after one that hung, retry at once.
        const elapsedMs = performance.now() - began;
        await pause(Math.max(0, backoffMs(this.#connectFailures++, LONGEST_PAUSE_MS) - elapsedMs));
      }
    }
    return undefined;
  }

  /** Closes a connection. One that is replaced later counts as lost. */
  #close(pooled: PooledConnection, { isLost = true } = {}): void {
    const index = this.#connections.indexOf(pooled);
    if (index < 0) return;

    this.#connections.splice(index, 1);
    pooled.connection.close();
    if (isLost) this.#lost++;
  }

  #closeAll(): void {
    for (const pooled of this.#connections.slice()) this.#close(pooled);
  }

  /** Rejects the work that waits for a connection. */
  #rejectWaiting(error: unknown): void {
    for (const { reject } of this.#waiting) reject(rejectionOf(error));
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
