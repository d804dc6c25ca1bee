import { type Connection, LOCK_TIMEOUT_MS } from "../../src/database/postgres/connection.ts";
import { PostgresFailure } from "../../src/database/postgres/errors.ts";
import { type NewPlant, PLANT_FIELDS } from "../../src/plant/plant.ts";
import { fern, TEXT } from "../support/plants.ts";
import type { VirtualTime } from "../support/virtual_time.ts";

/** How likely what is, of each statement. */
export interface FaultRates {
  /** The connection is gone before the statement arrives. */
  readonly lostRequest: number;
  /** The connection is gone before the reply arrives. */
  readonly lostReply: number;
  /** Nothing is heard of the connection any more. */
  readonly blackHole: number;
  /** A serialization failure or a deadlock. */
  readonly aborted: number;
  /** It takes a hundred times as long. */
  readonly slow: number;
}

/** How a model behaves. */
export interface ModelOptions {
  readonly time: VirtualTime;
  readonly random: () => number;
  readonly rates: FaultRates;
  /** Whether the second statement locks what it finds, and so waits for the standby. */
  readonly locksLosers: boolean;
}

/** A row, and whether the transaction that inserted it still waits. */
interface Row {
  readonly name: string;
  inProgress: boolean;
  isReplicated: boolean;
}

const ENDED = Symbol("the server's life has ended");

/**
 * A primary with a synchronous standby, as far as a pool of connections can tell. A commit is
 * durable on the primary first. It is visible and acknowledged once the standby has it. After a
 * crash the primary shows everything it committed, replicated or not.
 */
export class DatabaseModel {
  /** Those of the primary. */
  #rows = new Map<string, Row>();
  #isUp = true;
  /** A crash ends the life of a server. */
  #life = 1;
  #hasStandby = true;
  readonly #connections = new Set<ModelConnection>();
  /** Ids that a transaction of somebody else holds; it ends without a change. */
  readonly #held = new Set<string>();
  #changed = Promise.withResolvers<void>();
  readonly #options: ModelOptions;
  /** Whether statements still fail by chance. */
  faulty = true;

  constructor(options: ModelOptions) {
    this.#options = options;
  }

  /** Every plant that a client could read now. */
  plants(): Iterable<NewPlant> {
    const visible = this.#rows.entries().filter(([, row]) => !row.inProgress);
    return visible.map(([id, { name }]) => fern({ id: BigInt(id), [TEXT]: name }));
  }

  async connect(): Promise<Connection> {
    await this.#options.time.sleep(1 + this.#options.random() * 5);
    if (!this.#isUp) throw new PostgresFailure("NO_SERVER");
    const connection = new ModelConnection(this.#send.bind(this));
    this.#connections.add(connection);
    return connection;
  }

  /** Ends the primary, and starts it again on what it had committed. */
  async restart(downMs: number): Promise<void> {
    this.#crash();
    await this.#options.time.sleep(downMs);
    for (const row of this.#rows.values()) row.inProgress = false;
    this.#isUp = true;
  }

  /**
   * Ends the primary for good; the standby takes its place, with what it has, and a new standby
   * follows.
   */
  async failOver(downMs: number): Promise<void> {
    this.#crash();
    const replicated = this.#rows.entries().filter(([, { isReplicated }]) => isReplicated);
    this.#rows = new Map(replicated.map(([id, row]) => [id, { ...row, inProgress: false }]));
    this.#hasStandby = true;
    await this.#options.time.sleep(downMs);
    this.#isUp = true;
  }

  loseStandby(): void {
    this.#hasStandby = false;
  }

  /** It has everything at once. */
  regainStandby(): void {
    this.#hasStandby = true;
    for (const row of this.#rows.values()) row.isReplicated = true;
    this.#change();
  }

  /**
   * Holds ids for a time, as an insert that is rolled back in the end does, or a lock on their
   * rows.
   */
  async hold(ids: readonly string[], durationMs: number): Promise<void> {
    const free = ids.filter((id) => !this.#held.has(id) && this.#rows.get(id)?.inProgress !== true);
    for (const id of free) this.#held.add(id);
    await this.#options.time.sleep(durationMs);
    for (const id of free) this.#held.delete(id);
    this.#change();
  }

  /** Wakes whoever waits for something in the database. */
  #change(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  #crash(): void {
    this.#isUp = false;
    this.#life++;
    this.#held.clear();
    for (const connection of this.#connections) void connection.close();
    this.#connections.clear();
    this.#change();
  }

  #happens(rate: number): boolean {
    return this.faulty && this.#options.random() < rate;
  }

  async #send(
    connection: ModelConnection,
    statement: string,
    parameters: readonly unknown[],
  ): Promise<unknown[]> {
    const { lostRequest, lostReply, blackHole, aborted, slow } = this.#options.rates;
    const delayMs = (0.2 + this.#options.random() * 3) * (this.#happens(slow) ? 100 : 1);
    await this.#options.time.sleep(delayMs / 2);
    if (this.#happens(lostRequest)) return connection.close();
    if (this.#happens(aborted))
      throw new PostgresFailure(this.#options.random() < 0.5 ? "40001" : "40P01");

    const isSilent = this.#happens(blackHole);
    // Over there it goes on, whether anybody is still connected or not.
    const rows = this.#isUp ? await this.#execute(connection, statement, parameters) : ENDED;
    if (rows === ENDED || this.#happens(lostReply)) return connection.close();
    await this.#options.time.sleep(delayMs / 2);

    return isSilent ? await new Promise<never>(() => {}) : rows;
  }

  async #execute(connection: ModelConnection, statement: string, parameters: readonly unknown[]) {
    if (statement === "SELECT 1") return [{}];
    if (statement.includes("set_config")) {
      connection.lockTimeoutMs = Number(parameters[0]);
      return [{}];
    }

    const ids = listOf(parameters[0]);
    const names = listOf(parameters[1 + PLANT_FIELDS.indexOf(TEXT)]);
    return statement.includes("insert into")
      ? this.#insert(ids, names, connection.lockTimeoutMs)
      : this.#compare(ids, names);
  }

  async #insert(ids: readonly string[], names: readonly string[], lockTimeoutMs: number) {
    const life = this.#life;
    const inserted = new Map<string, Row>();

    for (const [index, id] of ids.entries()) {
      const isFree = () =>
        this.#rows.get(id)?.inProgress !== true && (this.#rows.has(id) || !this.#held.has(id));
      await this.#rivalsEnd(isFree, lockTimeoutMs);
      if (this.#life !== life) return ENDED;

      if (!isFree()) {
        for (const own of inserted.keys()) this.#rows.delete(own);
        this.#change();
        throw new PostgresFailure("55P03");
      }

      if (this.#rows.has(id)) continue;
      const row = { name: String(names[index]), inProgress: true, isReplicated: false };
      this.#rows.set(id, row);
      inserted.set(id, row);
    }

    // Committed there; a crash from now on loses none of it.
    if (inserted.size > 0 && !(await this.#replicated())) return ENDED;
    for (const row of inserted.values()) row.inProgress = false;
    this.#change();

    return Array.from(inserted, ([id, { name }]) => ({ ...fern({ [TEXT]: name }), id }));
  }

  async #compare(ids: readonly string[], names: readonly string[]) {
    const found = ids.flatMap((id, index) => {
      const row = this.#rows.get(id);
      const isSkipped = this.#options.locksLosers && this.#held.has(id);
      return row === undefined || row.inProgress || isSkipped
        ? []
        : [{ place: index + 1, is_same: row.name === names[index] }];
    });

    return !this.#options.locksLosers || (await this.#replicated()) ? found : ENDED;
  }

  /** Waits until others hold something no longer; not past the `lock_timeout`, nor the server's end. */
  async #rivalsEnd(isFree: () => boolean, lockTimeoutMs: number): Promise<void> {
    const life = this.#life;
    const end = this.#options.time.now() + lockTimeoutMs;
    if (isFree()) return;
    const late = this.#options.time.sleep(lockTimeoutMs);
    while (!isFree() && this.#options.time.now() < end && this.#life === life)
      await Promise.race([this.#changed.promise, late]);
  }

  /**
   * Waits for the standby to have all that was written so far, for ever if it has to; not past the
   * server's end.
   */
  async #replicated(): Promise<boolean> {
    const life = this.#life;
    const written = [...this.#rows.values()];
    await this.#options.time.sleep(0.3);
    while (!this.#hasStandby && this.#life === life) await this.#changed.promise;
    if (this.#life !== life) return false;
    for (const row of written) row.isReplicated = true;
    return true;
  }
}

type Send = (
  connection: ModelConnection,
  statement: string,
  parameters: readonly unknown[],
) => Promise<unknown[]>;

/** The server of every connection, even after a failover: it is an address that moves. */
export const HOST = { host: "model", port: 5432 };

/** A connection to the model; whatever is in flight rejects when it is closed. */
class ModelConnection implements Connection {
  readonly host = HOST;
  lockTimeoutMs = LOCK_TIMEOUT_MS;
  readonly #send: Send;
  readonly #closed = Promise.withResolvers<never>();
  #isOpen = true;
  #repliedAt = performance.now();

  constructor(send: Send) {
    this.#send = send;
    this.#closed.promise.catch(() => {});
  }

  async query<Row>(
    statement: string,
    parameters: readonly unknown[] = [],
  ): Promise<readonly Row[]> {
    if (!this.#isOpen) return this.#closed.promise;
    try {
      return (await Promise.race([
        this.#send(this, statement, parameters),
        this.#closed.promise,
      ])) as Row[];
    } finally {
      this.#repliedAt = performance.now();
    }
  }

  async script(): Promise<void> {}

  copyFrom(): never {
    throw new Error("the model restores no backup");
  }

  isOpen(): boolean {
    return this.#isOpen;
  }

  repliedAt(): number {
    return this.#repliedAt;
  }

  /** Rejects as what is in flight does. */
  close(): Promise<never> {
    this.#isOpen = false;
    this.#closed.reject(new PostgresFailure("ERR_POSTGRES_CONNECTION_CLOSED"));
    return this.#closed.promise;
  }
}

/** What an array's text holds, as long as no text needs an escape. */
function listOf(literal: unknown): string[] {
  const inner = String(literal).slice(1, -1);
  return inner === "" ? [] : inner.split(",").map((text) => text.replaceAll('"', ""));
}
