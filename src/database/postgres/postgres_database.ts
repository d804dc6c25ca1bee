import { withDeadline } from "../../async/timers.ts";
import type { PlantStore } from "../../group_commit/plant_store.ts";
import type {
  CreationOptions,
  DatabaseAccess,
  DatabaseAdapter,
  DatabaseMetric,
  OnWarning,
  ServingDatabase,
  ServingOptions,
} from "../adapter.ts";
import { type Database, DatabaseError, keysetPages } from "../database.ts";
import type { Connection } from "./connection.ts";
import { PostgresFailure, withDatabaseError } from "./errors.ts";
import { failover, type Servers } from "./failover.ts";
import {
  migrateSchema,
  MIGRATIONS,
  pendingMigrations,
  requireCreate,
  scriptOf,
} from "./migrations.ts";
import { missingStandby, standbyWatch } from "./missing_standby.ts";
import { countPlants, deletePlants, durablePage, findPlants } from "./pages.ts";
import { Pool, poolMetrics, type PoolOptions, type Work } from "./pool.ts";
import { batchAdder, probe } from "./postgres_plants.ts";
import { verifyTables } from "./tables_verifier.ts";
import { postgresTokens } from "./tokens.ts";
import { describeHost, howToRun, parsePostgresUrl, type PostgresUrl } from "./url.ts";

/** A database with an open first connection. Disposing of it closes that connection. */
export interface Reached extends Disposable {
  readonly url: PostgresUrl;
  readonly servers: Servers;
  /** The first connection, for migrating the schema and checking the server. */
  readonly connection: Connection;
}

/**
 * Connects to the first available server of a URL.
 *
 * @param readUrl Reloads the URL: see {@linkcode ServingOptions}.
 * @throws {DatabaseError} If no server is available. The message says why, in one line.
 */
export async function reach(
  url: PostgresUrl,
  readUrl?: ServingOptions["readUrl"],
): Promise<Reached> {
  const readAgain = readUrl && (async () => parsePostgresUrl(await readUrl()));
  const servers = failover(url, { readUrl: readAgain });
  const connection = await withDatabaseError("open", url.database, () => servers.connect());
  return { url, servers, connection, [Symbol.dispose]: connection.close };
}

/** A database on PostgreSQL. */
export interface PostgresDatabase extends Database {
  /** The metrics of its connections. */
  metrics(): readonly DatabaseMetric[];
}

/** How a PostgreSQL database is opened. */
export interface PostgresOptions {
  /** `create` creates missing tables; `write` and `read` require them. @default {"create"} */
  readonly access?: DatabaseAccess;
  /**
   * How many batches may be in flight at once, each on its own connection.
   *
   * @default {MAX_IN_FLIGHT}
   */
  readonly maxInFlight?: number;
  /**
   * Whether to connect every pool before the first plant, as a server does.
   *
   * @default {false}
   */
  readonly isServing?: boolean;
  /** Called with the name of the database after creating its tables. @default does nothing */
  readonly onCreate?: CreationOptions["onCreate"];
  /** Called with problems that the operator should know of. @default does nothing */
  readonly onWarning?: OnWarning | undefined;
  /** Whether to accept plants that Citus has distributed. @default {false} */
  readonly acceptsDistributed?: boolean;
}

/** Returns a metric for each server of the URL, which shows the server in use. */
function hostMetrics({ url, servers }: Reached): readonly DatabaseMetric[] {
  const current = servers.current();
  return url.hosts.map((host) => ({
    name: "plant_store_postgres_host_in_use",
    help: "1 for the server that accepted a connection last, else 0",
    type: "gauge",
    labels: { host: describeHost(host) },
    value: host === current ? 1 : 0,
  }));
}

/**
 * The number of batches in flight at once. More of them need more connections and make batches smaller,
 * but are hardly faster.
 */
export const MAX_IN_FLIGHT = 4;

/**
 * The time limit for migrating the schema when a database is opened, in milliseconds. Nothing else limits
 * the wait for a missing synchronous standby.
 */
const SCHEMA_TIMEOUT_MS = 10_000;
/**
 * The time limit of `plant-store migrate`, and for counting, in milliseconds. A large table takes hours. A
 * signal ends it earlier.
 */
const LARGE_TABLE_TIMEOUT_MS = 24 * 60 * 60 * 1_000;
/** How long `plant-store migrate` retries to get a lock, in milliseconds. */
const MIGRATE_PATIENCE_MS = 120_000;
/** The time limit of a probe, in milliseconds: its result must not be older than a second. */
export const PROBE_TIMEOUT_MS = 1_000;
/** The time limit for finding out why a server is silent, in milliseconds. */
const ASK_TIMEOUT_MS = 1_000;
/** The time limit for reading, in milliseconds, and the statement timeout on the server. */
export const READ_TIMEOUT_MS = 10_000;
/**
 * The time limit for a page of plants, in milliseconds: the disk may have to seek for each row. A second
 * attempt finds the rows of the first in memory.
 */
const PAGE_TIMEOUT_MS = 60_000;

/**
 * Opens a database on PostgreSQL, and migrates its schema unless the access is `read`. Closes the first
 * connection before it opens others. Replaces lost connections without a log line.
 *
 * @throws {DatabaseError} If the database cannot be used now. The message says why, in one line.
 */
export async function openPostgres(
  reached: Reached,
  options: PostgresOptions = {},
): Promise<PostgresDatabase> {
  const { url, servers } = reached;
  const { access = "create", maxInFlight = MAX_IN_FLIGHT, isServing = false } = options;

  /** The `search_path` of every later session, even if the role's changes meanwhile. */
  let searchPath: string | undefined;
  await onFirst(reached, SCHEMA_TIMEOUT_MS, async (connection) => {
    if (!options.acceptsDistributed) await refuseDistributed(connection);
    if (await requireSchema(connection, options)) options.onCreate?.(url.database);
    // A role that only reads needs fewer privileges. If a table is missing, reading it fails.
    if (access !== "read") searchPath = await verifyTables(connection);
  });
  reached.connection.close();

  const explainSilence = () => whySilent(reading);
  const poolOf = (size: number, more: Pick<PoolOptions, "replyLimitMs" | "explainSilence">) =>
    new Pool({
      ...more,
      size,
      connect: () => servers.connect({ statementTimeoutMs: more.replyLimitMs, searchPath }),
      current: servers.current,
      onSilence: servers.suspect,
    });

  // Plants never wait for tokens. Reads of tokens, which wait for no standby, never wait for writes.
  const plants = poolOf(maxInFlight, { explainSilence });
  const writing = poolOf(1, { explainSilence });
  const reading = poolOf(1, { replyLimitMs: READ_TIMEOUT_MS });

  const pools = [plants, writing, reading];
  const standbys = standbyWatch(options.onWarning);
  const close = () => pools.forEach((pool) => pool.close());
  const read = <Result>(work: Work<Result>, timeoutMs: number) =>
    withDatabaseError("read", url.database, () => writing.run(work, timeoutMs));

  if (isServing) {
    // Otherwise a client would be the first to find that a pool cannot connect.
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

  return {
    plants: plantStore(plants, standbys.see),
    tokens: postgresTokens(reading, writing),
    // It waits for the standby, so it must not keep the tokens from being read.
    pages: () => keysetPages((from) => read(durablePage(from), PAGE_TIMEOUT_MS)),
    find: (ids) => read(findPlants(ids), READ_TIMEOUT_MS),
    count: () => read(countPlants, LARGE_TABLE_TIMEOUT_MS),
    delete: (ids) => writing.run(deletePlants(ids), READ_TIMEOUT_MS),
    metrics: () => [...poolMetrics(pools), ...hostMetrics(reached), ...standbys.metrics()],

    async [Symbol.asyncDispose]() {
      close();
    },
  };
}

/**
 * Opens a database on PostgreSQL for a server, with {@linkcode openPostgres}, and adds a queue.
 *
 * @throws {DatabaseError} If the database cannot be used now. The message says why, in one line.
 */
export async function servePostgres(
  reached: Reached,
  { makeQueue, create = false, onCreate, onWarning }: ServingOptions,
): Promise<ServingDatabase> {
  const access = create ? "create" : "write";
  const options = { access, isServing: true, onCreate, onWarning } as const;
  const { plants, ...database } = await openPostgres(reached, options);

  return {
    ...database,
    plants: makeQueue(plants, MAX_IN_FLIGHT),
    ready: plants.probe,
    // Never fails for good: what PostgreSQL has committed stays committed.
    failed: new Promise(() => {}),
  };
}

/**
 * Returns the store of plants on a pool. The probe uses the same pool, because whatever blocks that pool
 * blocks every plant.
 *
 * @param onProbe Called with what {@linkcode probe} returns.
 */
export function plantStore(
  pool: Pool,
  onProbe: (standbyNames: string | undefined) => void = () => {},
): PlantStore {
  const addBatch = batchAdder();

  return {
    add: (batch, { timeoutMs }) => {
      const deadline = performance.now() + timeoutMs;
      return pool.run((connection) => addBatch(connection, batch, deadline), timeoutMs);
    },
    probe: async () => onProbe(await pool.run(probe, PROBE_TIMEOUT_MS)),
  };
}

/**
 * Migrates the schema: see {@linkcode DatabaseAdapter.migrate}.
 *
 * @throws {DatabaseError} If the database cannot be used, or the role may not create or alter tables.
 */
export async function migratePostgres(
  reached: Reached,
  { dryRun, onCreate }: Parameters<DatabaseAdapter["migrate"]>[0],
): ReturnType<DatabaseAdapter["migrate"]> {
  const pending = await onFirst(reached, LARGE_TABLE_TIMEOUT_MS, (connection) =>
    dryRun ? pendingMigrations(connection) : migrateSchema(connection, MIGRATE_PATIENCE_MS),
  );
  if (!dryRun && pending.length === MIGRATIONS.length) onCreate?.(reached.url.database);
  return pending.map((migration) => ({ tag: migration.tag, script: scriptOf(migration) }));
}

/**
 * Requires that the role may create and alter the tables.
 *
 * @throws {DatabaseError} If it may not.
 */
export function requireMigratable(reached: Reached): Promise<void> {
  return onFirst(reached, SCHEMA_TIMEOUT_MS, requireCreate);
}

/** Runs a call on the first connection, within `timeoutMs`. Translates failures for the operator. */
function onFirst<Result>(
  { url, servers, connection }: Reached,
  timeoutMs: number,
  use: (connection: Connection) => Promise<Result>,
): Promise<Result> {
  const asking = new Pool({ size: 1, connect: servers.connect, current: servers.current });

  return withDatabaseError(
    "open",
    url.database,
    async () =>
      await withDeadline(use(connection), timeoutMs, async (): Promise<never> => {
        const reason = await whySilent(asking);
        asking.close();
        throw reason ?? new PostgresFailure("DEADLINE");
      }),
  );
}

/** Finds out why a server does not reply, on a connection of another pool. */
function whySilent(reading: Pool): Promise<PostgresFailure | undefined> {
  return reading.run(missingStandby, ASK_TIMEOUT_MS).catch(() => undefined);
}

/** Citus adds this trigger to each distributed table. Its catalog exists only if Citus is installed. */
const DISTRIBUTED = `SELECT FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_proc ON pg_proc.oid = tgfoid
  WHERE tgrelid = to_regclass('plants') AND proname = 'citus_truncate_trigger'`;

/** @throws {DatabaseError} If Citus has distributed the plants. */
export async function refuseDistributed({ query }: Connection): Promise<void> {
  if ((await query(DISTRIBUTED)).length > 0)
    throw new DatabaseError("Citus has distributed its plants: use its URL with the scheme citus");
}

/**
 * Requires the tables, and migrates them unless the access is `read`.
 *
 * @returns Whether it created them.
 */
async function requireSchema(
  connection: Connection,
  { access = "create", onWarning }: PostgresOptions,
): Promise<boolean> {
  const pending = await pendingMigrations(connection, onWarning);
  if (pending.length === 0) return false;

  if (access !== "create" && pending.length === MIGRATIONS.length)
    throw new DatabaseError(access === "read" ? NO_TABLES : `${NO_TABLES}; ${CREATE_TABLES}`);
  if (access === "read")
    throw new DatabaseError(`its tables are those of an older version: ${howToRun("migrate")}`);

  // If several servers start at the same time, only one creates the tables.
  return (await migrateSchema(connection)).length === MIGRATIONS.length;
}

const NO_TABLES = "it has no plant-store tables";
const CREATE_TABLES = `choose another database with --database; for a new one ${howToRun("migrate")}`;
