import { STATEMENT_TIMEOUT_MS } from "./connection.ts";
import type { PostgresHost } from "./url.ts";

/**
 * The state of an open connection:
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
export type ConnectionState = "idle" | "checking" | "busy" | "overdue" | "timed out";

/** The facts about an open connection. Times are those of `performance.now()`. */
export interface ConnectionFacts {
  readonly state: ConnectionState;
  /** When it entered this state. */
  readonly since: number;
  readonly openedAt: number;
  /** When the server last replied to it. */
  readonly repliedAt: number;
  /** False once the server or the network has closed it. */
  readonly isOpen: boolean;
  readonly host: PostgresHost;
}

/** The facts that decide what a pool does next. Times are those of `performance.now()`. */
export interface PoolFacts {
  readonly now: number;
  readonly connections: readonly ConnectionFacts[];
  /** How many pieces of work wait for a connection. */
  readonly waiting: number;
  /** How many pieces of work may be in flight at once. */
  readonly size: number;

  /** How many connections are being opened. */
  readonly connecting: number;
  /** Whether the last attempt to connect failed. */
  readonly isConnectFailing: boolean;
  /** When a connection was last opened beside an overdue one. */
  readonly openedBesideAt: number;
  /** The server in use: that of the newest connection of any pool. */
  readonly host: PostgresHost | undefined;

  /** Since when a server is silent. */
  readonly silentSince: number;
  /** When the newest piece of work began that has succeeded. */
  readonly newestSuccessBeganAt: number;
  /** The server ends every statement within this time, in milliseconds; `Infinity` if it does not. */
  readonly replyLimitMs: number;
}

/**
 * The next step of a pool:
 *
 * - `assign` the oldest waiting work to a connection;
 * - `check` whether a connection is alive;
 * - `close` a connection that is lost: its work is repeated, and another one takes its place;
 * - `retire` a connection that is not needed: nothing takes its place;
 * - `open` a connection for waiting work;
 * - `openBeside` an overdue one, even if no work waits: it may lead to a server that has taken over;
 * - `wait` until something changes.
 *
 * `connection` is its index among the facts.
 */
export type PoolStep =
  | { readonly do: "wait" }
  | { readonly do: "open" }
  | { readonly do: "openBeside" }
  | { readonly do: "assign" | "check" | "close" | "retire"; readonly connection: number };

/** How long after a reply a connection is used without checking it, in milliseconds. */
const FRESH_MS = 5_000;
/**
 * The maximum age of a connection, in milliseconds: a new one sees changes of the server's settings
 * and of DNS.
 */
const MAX_AGE_MS = 600_000;
/** The time between two connections that are opened beside overdue ones, in milliseconds. */
const BESIDE_INTERVAL_MS = 2_000;

/** Decides the next step after a change. Each step is a change: ask again until it is `wait`. */
export function nextPoolStep(facts: PoolFacts): PoolStep {
  const { connections } = facts;

  const lost = connections.findIndex((connection) => isLost(connection, facts));
  if (lost >= 0) return { do: "close", connection: lost };

  const unneeded = connections.findIndex((connection) => isUnneeded(connection, facts));
  if (unneeded >= 0) return { do: "retire", connection: unneeded };

  const idle = mostRecentlyUsed(connections);
  // All silent ones are checked at once: if the network dropped one, it may have dropped them all.
  if (facts.waiting > 0 && idle !== undefined) {
    const [connection, { repliedAt }] = idle;
    return { do: isFresh(repliedAt, facts) ? "assign" : "check", connection };
  }

  if (mayOpen(facts)) return { do: "open" };
  if (mayOpenBeside(facts)) return { do: "openBeside" };
  return { do: "wait" };
}

/**
 * Whether to try again after a failure to connect: work waits, or a server is silent and another
 * one may have taken over.
 */
export function isConnectionWanted({ waiting, connections }: PoolFacts): boolean {
  return waiting > 0 || count(connections, "overdue") > 0;
}

/** How many connections can take work, now or soon. */
export function usable(connections: readonly ConnectionFacts[]): number {
  return connections.length - count(connections, "overdue") - count(connections, "timed out");
}

/** Whether its work has to be repeated on another one, or its reply will not come. */
function isLost(connection: ConnectionFacts, facts: PoolFacts): boolean {
  // Another server has taken over.
  const isElsewhere = facts.host !== undefined && connection.host !== facts.host;
  return !connection.isOpen || isElsewhere || hasLostReply(connection, facts);
}

/**
 * Whether the reply to work that timed out will not come. If later work has succeeded, no commit
 * waits for a standby: only the reply was lost. Such a connection is kept until its place is
 * needed, or until the server would have ended the statement.
 */
function hasLostReply({ state, since }: ConnectionFacts, facts: PoolFacts): boolean {
  if (state !== "timed out") return false;

  const silentMs = facts.now - since;
  if (silentMs > facts.replyLimitMs) return true;

  const isOlder = since < facts.newestSuccessBeganAt;
  return isOlder && (isFull(facts) || silentMs > STATEMENT_TIMEOUT_MS);
}

/** Whether it is too old, or was replaced while its server was silent. */
function isUnneeded({ state, openedAt }: ConnectionFacts, facts: PoolFacts): boolean {
  if (state !== "idle") return false;
  return facts.now - openedAt > MAX_AGE_MS || usable(facts.connections) > facts.size;
}

/** The idle connection to use next, with its index: the others can age. */
function mostRecentlyUsed(
  connections: readonly ConnectionFacts[],
): [index: number, ConnectionFacts] | undefined {
  const idle = [...connections.entries()].filter(([, { state }]) => state === "idle");
  return idle.toSorted(([, one], [, other]) => other.repliedAt - one.repliedAt)[0];
}

/** Whether a connection with this last reply may be used without checking it. */
function isFresh(repliedAt: number, { silentSince, now }: PoolFacts): boolean {
  return repliedAt > Math.max(silentSince, now - FRESH_MS);
}

/** Whether waiting work needs one more. While connecting fails, they are opened one at a time. */
function mayOpen(facts: PoolFacts): boolean {
  const { connections, connecting, waiting, size } = facts;
  const arriving = count(connections, "checking") + connecting;
  if (waiting <= arriving || usable(connections) + connecting >= size) return false;

  const isTried = facts.isConnectFailing && connecting > 0;
  return !isTried && !isFull(facts);
}

/** Whether a connection is overdue that was not when one was last opened beside. */
function mayOpenBeside(facts: PoolFacts): boolean {
  if (facts.connecting > 0 || isFull(facts)) return false;

  const earliest = facts.openedBesideAt + BESIDE_INTERVAL_MS;
  return facts.connections.some(({ state, since }) => state === "overdue" && since >= earliest);
}

/**
 * Whether no more connections may be opened, whatever the open ones do: it bounds the statements
 * that are left behind on the server.
 */
function isFull({ connections, connecting, size }: PoolFacts): boolean {
  return connections.length + connecting >= 2 * size;
}

function count(connections: readonly ConnectionFacts[], wanted: ConnectionState): number {
  return connections.filter(({ state }) => state === wanted).length;
}
