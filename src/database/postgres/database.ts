import { withDeadline } from "../../async/deadline.ts";
import { type Access, ADD_SHARE } from "../adapter.ts";
import { type Database, DatabaseError, keysetPages, type PlantStore } from "../database.ts";
import type { Connection, ConnectionOptions } from "./connection.ts";
import { PostgresFailure, toDatabaseError } from "./errors.ts";
import { type Failover, failover } from "./failover.ts";
import { migrate, type Migration, MIGRATIONS, pendingMigrations } from "./migrations.ts";
import { addPlants, probe, readPage } from "./plants.ts";
import { noCounts, Pool, poolMetrics, type Work } from "./pool.ts";
import { requirePrivileges, tablesVerifier } from "./tables.ts";
import {
  addToken,
  deleteToken,
  listTokens,
  pruneTokens,
  recordTokenUses,
  revisionOfTokens,
  revokeToken,
} from "./tokens.ts";
import type { PostgresUrl } from "./url.ts";

/** How a PostgreSQL database is opened. */
export interface PostgresOptions {
  /** What for: `create` makes the tables if they are missing, `write` and `read` need them. @default {"create"} */
  readonly access?: Access;
  /** How many batches may be in flight at once, each on a connection of its own. @default {MAX_IN_FLIGHT} */
  readonly maxInFlight?: number;
  /** Whether a server opens it: all that a server needs connections for has one then. @default {false} */
  readonly isServing?: boolean;
  /** Called with a problem that an operator should know of; no data is lost by it. @default does nothing */
  readonly onWarning?: ((message: string) => void) | undefined;
}

/**
 * With eight, a plant waits as long for commits of 5 ms, and a tenth less for commits of 20 ms; and its batch is half as
 * large, while each takes one of the database's connections.
 */
export const MAX_IN_FLIGHT = 4;

/**
 * How long reading the schema and bringing it up to date may take when a database is opened, in milliseconds: nothing
 * else bounds the wait for a missing synchronous standby.
 */
const SCHEMA_TIMEOUT_MS = 10_000;
/** The time limit of `plant-store migrate`, in milliseconds: a change to a large table takes hours, and a signal ends it. */
const MIGRATE_TIMEOUT_MS = 24 * 60 * 60 * 1_000;
/** How long a probe may take, in milliseconds: its verdict is older than a second then. */
const PROBE_TIMEOUT_MS = 1_000;
/** How long tokens and pages may take, in milliseconds; reading that was given up ends on the server at the same time. */
const WORK_TIMEOUT_MS = 10_000;
/** How long reading whether tokens were changed may take, in milliseconds: a revocation is to be known soon. */
const REVISION_TIMEOUT_MS = 2_000;

/**
 * Opens a database on PostgreSQL, and brings its schema up to date unless it is only read. Connections are lost and
 * reopened without a log line: `failed` never resolves, because the server made durable what it acknowledged.
 *
 * @throws {DatabaseError} If it cannot be used now; the message says why, in one line.
 */
export async function openPostgres(url: PostgresUrl, options: PostgresOptions = {}): Promise<Database> {
  const { access = "create", maxInFlight = MAX_IN_FLIGHT, isServing = false, onWarning = () => {} } = options;
  const writable = access !== "read";
  const servers = failover(url, onWarning);
  const tables = tablesVerifier({ writable, onWarning });
  await connected(url, servers, { writable, timeoutMs: SCHEMA_TIMEOUT_MS }, async (connection) => {
    await requireSchema(connection, access);
    await tables.verify(connection);
    if (writable) await requirePrivileges(connection);
  });
  const counts = noCounts();
  const poolOf = (size: number, replyLimitMs?: number) =>
    new Pool({
      size,
      counts,
      connect: (timeoutMs) =>
        servers.connect({
          writable,
          timeoutMs,
          statementTimeoutMs: replyLimitMs,
          searchPath: tables.searchPath(),
          verify: tables.verify,
        }),
      onSilence: servers.suspect,
      replyLimitMs,
    });
  // Plants wait for no token, and reading, which waits for no standby, not for writing.
  const [plants, writing, reading] = [poolOf(maxInFlight), poolOf(1), poolOf(1, WORK_TIMEOUT_MS)];
  const pools = [plants, writing, reading];
  const close = () => pools.forEach((pool) => pool.close());
  if (isServing) await connectAll(url, pools).catch((error: unknown) => (close(), Promise.reject(error)));
  const write = <Result>(work: Work<Result>) => writing.run(work, WORK_TIMEOUT_MS);
  return {
    plants: plantStore(plants),
    tokens: {
      list: () => reading.run(listTokens, WORK_TIMEOUT_MS),
      revision: () => reading.run(revisionOfTokens, REVISION_TIMEOUT_MS),
      add: (token) => write((connection, attempt) => addToken(connection, token, attempt)),
      revoke: (name, at) => write((connection, attempt) => revokeToken(connection, name, at, attempt)),
      delete: async (name) => (await write(deleteToken(name))) > 0,
      prune: (at) => write(pruneTokens(at)),
      recordUses: (uses) => write((connection) => recordTokenUses(connection, uses)),
    },
    pages: () => keysetPages((from) => readable(url, reading.run(readPage(from), WORK_TIMEOUT_MS))),
    metrics: () => poolMetrics(pools, counts),
    failed: new Promise(() => {}),
    async [Symbol.asyncDispose]() {
      close();
    },
  };
}

/** A pool without a connection would be found later, by a client. */
async function connectAll(url: PostgresUrl, pools: readonly Pool[]): Promise<void> {
  const timeoutMs = url.connectTimeoutMs * url.hosts.length;
  try {
    await Promise.all(pools.map((pool) => pool.connect(timeoutMs)));
  } catch (error) {
    throw toDatabaseError("open", url.database, error);
  }
}

/** The plants' store on their pool. The probe shares it, because what blocks the whole pool blocks every plant. */
export function plantStore(pool: Pool): PlantStore {
  return {
    add: (batch, { timeoutMs }) => {
      const limitMs = timeoutMs * ADD_SHARE;
      const deadline = performance.now() + limitMs;
      return pool.run((connection) => addPlants(connection, batch, deadline), limitMs);
    },
    probe: () => pool.run(probe, PROBE_TIMEOUT_MS),
  };
}

/**
 * Brings the schema up to date; unless it is only asked for, and changes nothing.
 *
 * @returns What was to be done.
 * @throws {DatabaseError} If the database cannot be used, or the role may not create tables.
 */
export function migratePostgres(
  url: PostgresUrl,
  dryRun: boolean,
  onWarning: (message: string) => void,
): Promise<readonly Migration[]> {
  const options = { writable: !dryRun, timeoutMs: MIGRATE_TIMEOUT_MS };
  return connected(url, failover(url, onWarning), options, dryRun ? pendingMigrations : migrate);
}

/** Connects once, so that what is wrong is said at the start. */
async function connected<Result>(
  url: PostgresUrl,
  servers: Failover,
  { writable, timeoutMs }: ConnectionOptions,
  use: (connection: Connection) => Promise<Result>,
): Promise<Result> {
  try {
    const connection = await servers.connect({ writable, timeoutMs: url.connectTimeoutMs * url.hosts.length });
    return await withDeadline(use(connection), timeoutMs, () => {
      throw new PostgresFailure("DEADLINE");
    }).finally(connection.close);
  } catch (error) {
    throw toDatabaseError("open", url.database, error);
  }
}

async function requireSchema(connection: Connection, access: Access): Promise<void> {
  const pending = await pendingMigrations(connection);
  if (access !== "create" && pending.length === MIGRATIONS.length) throw new DatabaseError("no plant-store is in it");
  if (access !== "read" && pending.length > 0) await migrate(connection);
}

async function readable<Result>(url: PostgresUrl, result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (error) {
    throw toDatabaseError("read", url.database, error);
  }
}
