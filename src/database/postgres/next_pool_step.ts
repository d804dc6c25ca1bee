import { STATEMENT_TIMEOUT_MS } from "./connection.ts";
import type { PostgresHost } from "./url.ts";

/**
 * The state of an open connection:
 *
 * - `idle`: it waits for work.
 * - `checking`: it was idle for long, or a server fell silent. It makes a round trip, and is then `idle`
 *   or closed.
 * - `busy`: it has work in flight, and the server replies to each statement within a second.
 * - `overdue`: the server has not replied to its statement for a second. Another connection may be opened
 *   in its place.
 * - `timed out`: the caller no longer waits for the work. The statement continues, so the connection stays
 *   open.
 *
 * When its work ends, in any state, the connection becomes `idle` or is closed.
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
  /** The server in use: the one to which the newest connection of any pool leads. */
  readonly host: PostgresHost | undefined;

  /** When a server fell silent. */
  readonly silentSince: number;
  /** The latest start of any work that succeeded. */
  readonly newestSuccessBeganAt: number;
  /** The statement timeout of the server, in milliseconds; `Infinity` if there is none. */
  readonly replyLimitMs: number;
}

/**
 * The next step of a pool:
 *
 * - `assign` the oldest waiting work to a connection;
 * - `check` whether a connection is alive;
 * - `close` a lost connection: its work is repeated, and another connection replaces it;
 * - `retire` a connection that is not needed, without a replacement;
 * - `open` a connection for waiting work;
 * - `openBeside`: open a connection beside an overdue one, even if no work waits, because it may lead to a
 *   server that has taken over;
 * - `wait` until something changes.
 *
 * `connection` is its index among the facts.
 */
export type PoolStep =
  | { readonly do: "wait" }
  | { readonly do: "open" }
  | { readonly do: "openBeside" }
  | { readonly do: "assign" | "check" | "close" | "retire"; readonly connection: number };

/** How long after its last reply a connection is used without a check, in milliseconds. */
const FRESH_MS = 5_000;
/**
 * The maximum age of a connection, in milliseconds: a new one sees changes to the server's settings and to
 * DNS.
 */
const MAX_AGE_MS = 600_000;
/** The time between two connections that are opened beside overdue ones, in milliseconds. */
const BESIDE_INTERVAL_MS = 2_000;

/** Decides the next step of a pool. Call it after each change, and again after each step but `wait`. */
export function nextPoolStep(facts: PoolFacts): PoolStep {
  const { connections } = facts;

  const lost = connections.findIndex((connection) => isLost(connection, facts));
  if (lost >= 0) return { do: "close", connection: lost };

  const unneeded = connections.findIndex((connection) => isUnneeded(connection, facts));
  if (unneeded >= 0) return { do: "retire", connection: unneeded };

  const idle = mostRecentlyUsed(connections);
  // Check all silent connections at once: if the network dropped one, it may have dropped them all.
  if (facts.waiting > 0 && idle !== undefined) {
    const [connection, { repliedAt }] = idle;
    return { do: isFresh(repliedAt, facts) ? "assign" : "check", connection };
  }

  if (mayOpen(facts)) return { do: "open" };
  if (mayOpenBeside(facts)) return { do: "openBeside" };
  return { do: "wait" };
}

/**
 * Reports whether to retry after a failure to connect: work waits, or a server is silent and another may
 * have taken over.
 */
export function isConnectionWanted({ waiting, connections }: PoolFacts): boolean {
  return waiting > 0 || count(connections, "overdue") > 0;
}

/** Counts the connections that can take work, now or soon. */
export function usable(connections: readonly ConnectionFacts[]): number {
  return connections.length - count(connections, "overdue") - count(connections, "timed out");
}

/** Reports whether a connection's work must be repeated on another, or its reply will never come. */
function isLost(connection: ConnectionFacts, facts: PoolFacts): boolean {
  // Another server has taken over.
  const isElsewhere = facts.host !== undefined && connection.host !== facts.host;
  return !connection.isOpen || isElsewhere || hasLostReply(connection, facts);
}

/**
 * Reports whether the reply to work that timed out will never come. If later work has succeeded, commits
 * do not hang for a missing standby, so the reply was lost. Such a connection is kept until the pool is
 * full or the server would have ended the statement.
 */
function hasLostReply({ state, since }: ConnectionFacts, facts: PoolFacts): boolean {
  if (state !== "timed out") return false;

  const silentMs = facts.now - since;
  if (silentMs > facts.replyLimitMs) return true;

  const isOlder = since < facts.newestSuccessBeganAt;
  return isOlder && (isFull(facts) || silentMs > STATEMENT_TIMEOUT_MS);
}

/** Reports whether an idle connection is too old, or was replaced while its server was silent. */
function isUnneeded({ state, openedAt }: ConnectionFacts, facts: PoolFacts): boolean {
  if (state !== "idle") return false;
  return facts.now - openedAt > MAX_AGE_MS || usable(facts.connections) > facts.size;
}

/** Returns the idle connection that was used last, with its index, so that unneeded ones stay unused. */
function mostRecentlyUsed(
  connections: readonly ConnectionFacts[],
): [index: number, ConnectionFacts] | undefined {
  const idle = [...connections.entries()].filter(([, { state }]) => state === "idle");
  return idle.toSorted(([, one], [, other]) => other.repliedAt - one.repliedAt)[0];
}

/** Reports whether a connection with this last reply may be used without a check. */
function isFresh(repliedAt: number, { silentSince, now }: PoolFacts): boolean {
  return repliedAt > Math.max(silentSince, now - FRESH_MS);
}

/** Reports whether waiting work needs another connection. While connecting fails, opens one at a time. */
function mayOpen(facts: PoolFacts): boolean {
  const { connections, connecting, waiting, size } = facts;
  const arriving = count(connections, "checking") + connecting;
  if (waiting <= arriving || usable(connections) + connecting >= size) return false;

  const isTried = facts.isConnectFailing && connecting > 0;
  return !isTried && !isFull(facts);
}

/** Reports whether a connection became overdue after the last one was opened beside another. */
function mayOpenBeside(facts: PoolFacts): boolean {
  if (facts.connecting > 0 || isFull(facts)) return false;

  const earliest = facts.openedBesideAt + BESIDE_INTERVAL_MS;
  return facts.connections.some(({ state, since }) => state === "overdue" && since >= earliest);
}

/**
 * Reports whether the pool has its maximum of connections, in any state. This limits the statements that
 * are left behind on the server.
 */
function isFull({ connections, connecting, size }: PoolFacts): boolean {
  return connections.length + connecting >= 2 * size;
}

function count(connections: readonly ConnectionFacts[], wanted: ConnectionState): number {
  return connections.filter(({ state }) => state === wanted).length;
}
