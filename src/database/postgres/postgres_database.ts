import { withDeadline } from "../../async/timers.ts";
import type { Access } from "../adapter.ts";
import {
  type Database,
  DatabaseError,
  keysetPages,
  type PlantStore,
  TOKENS_MAX_AGE_MS,
} from "../database.ts";
import type { Connection } from "./connection.ts";
import { PostgresFailure, withDatabaseError } from "./errors.ts";
import { failover } from "./failover.ts";
import { HeldIds } from "./held_ids.ts";
import { migrate, MIGRATIONS, pendingMigrations } from "./migrations.ts";
import { Pool, poolMetrics } from "./pool.ts";
import { addPlants, durablePage, probe } from "./postgres_plants.ts";
import { tablesVerifier } from "./tables.ts";
import { postgresTokens } from "./tokens.ts";
import type { PostgresUrl } from "./url.ts";

/** How a PostgreSQL database is opened. */
export interface PostgresOptions {
  /** `create` creates missing tables; `write` and `read` need them. @default {"create"} */
  readonly access?: Access;
  /**
   * How many batches may be in flight at once, each on its own connection.
   *
   * @default {MAX_IN_FLIGHT}
   */
  readonly maxInFlight?: number;
  /**
   * Whether a server opens it. Then every pool connects before the first plant.
   *
   * @default {false}
   */
  readonly isServing?: boolean;
  /** Reads the URL again, as {@linkcode failover} does. @default the URL stays the same */
  readonly readUrl?: (() => Promise<PostgresUrl>) | undefined;
}

/**
 * How many batches are in flight at once. More need more connections and make the batches smaller,
 * and are hardly faster.
 */
export const MAX_IN_FLIGHT = 4;

/**
 * The time limit for migrating the schema when a database is opened, in milliseconds. Nothing else
 * bounds the wait for a missing synchronous standby.
 */
const SCHEMA_TIMEOUT_MS = 10_000;
/**
 * The time limit of `plant-store migrate`, in milliseconds. A change to a large table takes hours;
 * a signal ends it.
 */
const MIGRATE_TIMEOUT_MS = 24 * 60 * 60 * 1_000;
/** The time limit of a probe, in milliseconds: a verdict must not be older than a second. */
export const PROBE_TIMEOUT_MS = 1_000;
/** The time limit for reading, in milliseconds. The server ends a statement at the same time. */
const READ_TIMEOUT_MS = 10_000;

/**
 * Opens a database on PostgreSQL, and migrates its schema unless it is only read. Lost connections
 * are replaced without a log line. `failed` never resolves: what PostgreSQL acknowledged is
 * durable.
 *
 * @throws {DatabaseError} If it cannot be used now. The message says why, in one line.
 */
export async function openPostgres(
  url: PostgresUrl,
  options: PostgresOptions = {},
): Promise<Database> {
  const { access = "create", maxInFlight = MAX_IN_FLIGHT, isServing = false } = options;
  const servers = failover(url, options);

  // A role that only reads needs less of the tables. If one is missing, its statement fails.
  const tables = access === "read" ? undefined : tablesVerifier();
  await connected(url, servers, SCHEMA_TIMEOUT_MS, async (connection) => {
    await requireSchema(connection, access);
    await tables?.verify(connection);
  });

  const poolOf = (size: number, replyLimitMs?: number) =>
    new Pool({
      size,
      connect: () => servers.connect({ statementTimeoutMs: replyLimitMs, tables }),
      current: servers.current,
      onSilence: servers.suspect,
      replyLimitMs,
    });

  // Plants never wait for tokens. Reads, which wait for no standby, never wait for writes.
  const plants = poolOf(maxInFlight);
  const writing = poolOf(1);
  const reading = poolOf(1, READ_TIMEOUT_MS);

  const pools = [plants, writing, reading];
  const close = () => pools.forEach((pool) => pool.close());

  if (isServing) {
    // Otherwise a client would be the first to see that one pool cannot connect.
    const timeoutMs = url.connectTimeoutMs * (url.hosts.length + 1);
    const connect = () =>
      Promise.all(pools.map((pool) => pool.run(({ query }) => query("SELECT 1"), timeoutMs)));

    try {
      await withDatabaseError("open", url.database, connect);
    } catch (error) {
      close();
      throw error;
    }
  }

  const store = plantStore(plants);
  return {
    plants: store,
    storeOf: () => store,
    unready: () => [],
    tokens: postgresTokens(reading, writing),
    tokensMaxAgeMs: TOKENS_MAX_AGE_MS,
    // It waits for the standby, so it must not keep the tokens from being read.
    pages: () =>
      keysetPages((from) =>
        withDatabaseError("read", url.database, () =>
          writing.run(durablePage(from), READ_TIMEOUT_MS),
        ),
      ),
    metrics: () => poolMetrics(pools),
    failed: new Promise(() => {}),

    async [Symbol.asyncDispose]() {
      close();
    },
  };
}

/**
 * The plants' store on their pool. The probe uses the same pool, because whatever blocks that pool
 * blocks every plant.
 */
export function plantStore(pool: Pool): PlantStore {
  const held = new HeldIds();

  return {
    add: (batch, { timeoutMs }) => {
      const deadline = performance.now() + timeoutMs;
      return pool.run((connection) => addPlants(connection, batch, held, deadline), timeoutMs);
    },
    probe: () => pool.run(probe, PROBE_TIMEOUT_MS),
  };
}

/**
 * Migrates the schema. A dry run changes nothing.
 *
 * @returns The pending migrations.
 * @throws {DatabaseError} If the database cannot be used, or the role may not create tables.
 */
export function migratePostgres(url: PostgresUrl, dryRun: boolean) {
  const use = dryRun ? pendingMigrations : migrate;
  return connected(url, failover(url), MIGRATE_TIMEOUT_MS, use);
}

/** Uses one connection, for `timeoutMs` at most, and translates its failures for the operator. */
function connected<Result>(
  url: PostgresUrl,
  servers: ReturnType<typeof failover>,
  timeoutMs: number,
  use: (connection: Connection) => Promise<Result>,
): Promise<Result> {
  return withDatabaseError("open", url.database, async () => {
    const connection = await servers.connect();
    return await withDeadline(use(connection), timeoutMs, () => {
      throw new PostgresFailure("DEADLINE");
    }).finally(connection.close);
  });
}

/** Requires the tables, and migrates them unless the database is only read. */
async function requireSchema(connection: Connection, access: Access): Promise<void> {
  const pending = await pendingMigrations(connection);
  if (pending.length === 0) return;

  if (access !== "create" && pending.length === MIGRATIONS.length)
    throw new DatabaseError("it has no plant-store tables");
  if (access === "read")
    throw new DatabaseError("its tables are those of an older version: run plant-store migrate");

  await migrate(connection);
}
