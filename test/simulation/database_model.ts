import { type Connection, LOCK_TIMEOUT_MS } from "../../src/database/postgres/connection.ts";
import { PostgresFailure } from "../../src/database/postgres/errors.ts";
import type { VirtualTime } from "./virtual_time.ts";

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
  /** Whether the second statement locks what it finds, and so waits for the standby. @default {true} */
  readonly locksLosers?: boolean;
}

/** A row, and whether the transaction that inserted it still waits. */
interface Row {
  readonly name: string;
  inProgress: boolean;
  isReplicated: boolean;
}

/** One server of the database. A crash ends its life, and a restart begins another. */
interface Node {
  readonly rows: Map<string, Row>;
  isUp: boolean;
  life: number;
}

/** Where a statement runs, and how long it waits for a lock. */
interface Session {
  readonly node: Node;
  readonly hasEnded: () => boolean;
  readonly lockTimeoutMs: number;
}

const ENDED = Symbol("the server's life has ended");

/**
 * A primary with a synchronous standby, as far as lanes can tell: a commit is durable on the primary first, and is seen
 * and acknowledged once the standby has it; after a crash the primary shows what it committed, replicated or not.
 */
export class DatabaseModel {
  readonly #time: VirtualTime;
  readonly #random: () => number;
  readonly #rates: FaultRates;
  readonly #locksLosers: boolean;
  #primary: Node = { rows: new Map(), isUp: true, life: 1 };
  #hasStandby = true;
  readonly #connections = new Set<ModelConnection>();
  /** Ids that a transaction of somebody else holds; it ends without a change. */
  readonly #held = new Set<string>();
  #changed = Promise.withResolvers<void>();
  /** Whether statements still fail by chance. */
  faulty = true;

  constructor({ time, random, rates, locksLosers = true }: ModelOptions) {
    this.#time = time;
    this.#random = random;
    this.#rates = rates;
    this.#locksLosers = locksLosers;
  }

  /** Every row that a client could read now. */
  rows(): ReadonlyMap<string, string> {
    const visible = this.#primary.rows.entries().filter(([, row]) => !row.inProgress);
    return new Map(visible.map(([id, { name }]) => [id, name]));
  }

  async connect(timeoutMs: number): Promise<Connection> {
    const delayMs = 1 + this.#random() * 5;
    await this.#time.sleep(Math.min(delayMs, timeoutMs));
    if (!this.#primary.isUp || delayMs > timeoutMs) throw new PostgresFailure("NO_SERVER");
    const connection: ModelConnection = new ModelConnection((statement, parameters) =>
      this.#send(connection, statement, parameters),
    );
    this.#connections.add(connection);
    return connection;
  }

  /** Ends the primary, and starts it again on what it had committed. */
  async restart(downMs: number): Promise<void> {
    this.#crash();
    await this.#time.sleep(downMs);
    for (const row of this.#primary.rows.values()) row.inProgress = false;
    this.#primary.isUp = true;
  }

  /** Ends the primary for good; the standby takes its place, with what it has, and a new standby follows. */
  async failOver(downMs: number): Promise<void> {
    this.#crash();
    const rows = this.#primary.rows.entries().filter(([, { isReplicated }]) => isReplicated);
    const copies = rows.map(([id, { name }]) => [id, { name, inProgress: false, isReplicated: true }] as const);
    this.#primary = { rows: new Map(copies), isUp: false, life: this.#primary.life + 1 };
    this.#hasStandby = true;
    await this.#time.sleep(downMs);
    this.#primary.isUp = true;
  }

  loseStandby(): void {
    this.#hasStandby = false;
  }

  /** It has everything at once. */
  regainStandby(): void {
    this.#hasStandby = true;
    for (const row of this.#primary.rows.values()) row.isReplicated = true;
    this.#change();
  }

  /** Holds ids for a time, as an insert that is rolled back in the end does, or a lock on their rows. */
  async hold(ids: readonly string[], durationMs: number): Promise<void> {
    const free = ids.filter((id) => !this.#held.has(id) && this.#primary.rows.get(id)?.inProgress !== true);
    for (const id of free) this.#held.add(id);
    await this.#time.sleep(durationMs);
    for (const id of free) this.#held.delete(id);
    this.#change();
  }

  /** Wakes whoever waits for something in the database. */
  #change(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  #crash(): void {
    this.#primary.isUp = false;
    this.#primary.life++;
    this.#held.clear();
    for (const connection of this.#connections) connection.close();
    this.#connections.clear();
    this.#change();
  }

  #happens(rate: number): boolean {
    return this.faulty && this.#random() < rate;
  }

  async #send(connection: ModelConnection, statement: string, parameters: readonly unknown[]): Promise<unknown[]> {
    const { lostRequest, lostReply, blackHole, aborted, slow } = this.#rates;
    const delayMs = (0.2 + this.#random() * 3) * (this.#happens(slow) ? 100 : 1);
    await this.#time.sleep(delayMs / 2);
    if (this.#happens(lostRequest)) return connection.fail();
    if (this.#happens(aborted)) throw new PostgresFailure(this.#random() < 0.5 ? "40001" : "40P01");
    const isSilent = this.#happens(blackHole);
    // Over there it goes on, whether anybody is still connected or not.
    const rows = await this.#execute(connection, statement, parameters);
    if (rows === ENDED || this.#happens(lostReply)) return connection.fail();
    await this.#time.sleep(delayMs / 2);
    return isSilent ? await new Promise<never>(() => {}) : rows;
  }

  async #execute(
    connection: ModelConnection,
    statement: string,
    parameters: readonly unknown[],
  ): Promise<unknown[] | typeof ENDED> {
    const node = this.#primary;
    const { life } = node;
    if (!node.isUp) return ENDED;
    const hasEnded = () => node.life !== life || !node.isUp || node !== this.#primary;
    if (statement === "SELECT 1") return [{}];
    if (statement.includes("set_config")) {
      connection.lockTimeoutMs = Number(parameters[0]);
      return [{}];
    }
    const [ids, names] = [listOf(parameters[0]), listOf(parameters[1])];
    const session = { node, hasEnded, lockTimeoutMs: connection.lockTimeoutMs };
    return statement.includes("insert into") ? this.#insert(session, ids, names) : this.#select(session, ids);
  }

  async #insert(session: Session, ids: readonly string[], names: readonly string[]) {
    const { node, hasEnded } = session;
    const inserted: (readonly [string, Row])[] = [];
    for (const [index, id] of ids.entries()) {
      // It waits for an uncommitted rival.
      const isFree = () => node.rows.get(id)?.inProgress !== true && (node.rows.has(id) || !this.#held.has(id));
      if (!isFree() && !(await this.#waited(session, isFree))) {
        if (hasEnded()) return ENDED;
        for (const [own] of inserted) node.rows.delete(own);
        this.#change();
        throw new PostgresFailure("55P03");
      }
      if (node.rows.has(id)) continue;
      const row = { name: String(names[index]), inProgress: true, isReplicated: false };
      node.rows.set(id, row);
      inserted.push([id, row]);
    }
    // Committed there; a crash from now on loses none of it.
    if (inserted.length > 0 && !(await this.#replicated(node, hasEnded))) return ENDED;
    for (const [, row] of inserted) row.inProgress = false;
    this.#change();
    return inserted.map(([id]) => ({ id }));
  }

  async #select(session: Session, ids: readonly string[]) {
    const { node, hasEnded } = session;
    const found = ids.flatMap((id) => {
      const row = node.rows.get(id);
      const isSkipped = this.#locksLosers && this.#held.has(id);
      return row === undefined || row.inProgress || isSkipped
        ? []
        : [{ id, name: row.name, tag: null, name_digest: null, tag_digest: null }];
    });
    return !this.#locksLosers || (await this.#replicated(node, hasEnded)) ? found : ENDED;
  }

  /** Waits until others hold something no longer; not past the session's `lock_timeout`, nor the server's end. */
  async #waited({ hasEnded, lockTimeoutMs }: Session, isFree: () => boolean): Promise<boolean> {
    const end = this.#time.now() + lockTimeoutMs;
    const late = this.#time.sleep(lockTimeoutMs);
    while (!isFree() && this.#time.now() < end && !hasEnded()) await Promise.race([this.#changed.promise, late]);
    return isFree() && !hasEnded();
  }

  /** Waits for the standby to have all that was written so far, for ever if it has to; not past the server's end. */
  async #replicated(node: Node, hasEnded: () => boolean): Promise<boolean> {
    const written = [...node.rows.values()];
    await this.#time.sleep(0.3);
    while (!this.#hasStandby && !hasEnded()) await this.#changed.promise;
    if (hasEnded()) return false;
    for (const row of written) row.isReplicated = true;
    return true;
  }
}

type Send = (statement: string, parameters: readonly unknown[]) => Promise<unknown[]>;

/** After a failover, too: it is an address that moves. */
const HOST = { host: "model", port: 5432 };

/** A connection to the model; whatever is in flight rejects when it is closed. */
class ModelConnection implements Connection {
  readonly host = HOST;
  readonly isStandby = false;
  lockTimeoutMs = LOCK_TIMEOUT_MS;
  readonly #send: Send;
  readonly #closed = Promise.withResolvers<never>();
  #isOpen = true;
  #repliedAt = performance.now();

  constructor(send: Send) {
    this.#send = send;
    this.#closed.promise.catch(() => {});
  }

  async query<Row>(statement: string, parameters: readonly unknown[] = []): Promise<readonly Row[]> {
    if (!this.#isOpen) return this.fail();
    try {
      return (await Promise.race([this.#send(statement, parameters), this.#closed.promise])) as Row[];
    } finally {
      this.#repliedAt = performance.now();
    }
  }

  async script(): Promise<void> {}

  isOpen(): boolean {
    return this.#isOpen;
  }

  repliedAt(): number {
    return this.#repliedAt;
  }

  close(): void {
    this.#isOpen = false;
    this.#closed.reject(new PostgresFailure("ERR_POSTGRES_CONNECTION_CLOSED"));
  }

  fail(): never {
    this.close();
    throw new PostgresFailure("ERR_POSTGRES_CONNECTION_CLOSED");
  }
}

/** What an array's text holds, as long as no text needs an escape. */
function listOf(literal: unknown): string[] {
  const inner = String(literal).slice(1, -1);
  return inner === "" ? [] : inner.split(",").map((text) => text.replaceAll('"', ""));
}
