import { type Database, DatabaseError } from "../database.ts";
import { withDeadline } from "../../async/deadline.ts";
import { PlantStoreError } from "../../errors.ts";
import { keysetPages } from "../keyset.ts";
import type { PlantStore } from "../plant_store.ts";
import type { Connection, ConnectionOptions } from "./connection.ts";
import { connectorTo } from "./connector.ts";
import { PostgresFailure, unavailable } from "./errors.ts";
import { createLane } from "./lane.ts";
import type { LaneCounts } from "./lane_counts.ts";
import { createLanes, type Lanes } from "./lanes.ts";
import { migrate, type Migration, MIGRATIONS, pendingMigrations } from "./migrations.ts";
import { addPlants, readPage } from "./plants.ts";
import { addToken, deleteToken, listTokens, pruneTokens, recordTokenUses, revokeToken } from "./tokens.ts";
import { databaseMetrics } from "./metrics.ts";
import { requirePrivileges } from "./privileges.ts";
import { tablesVerifier } from "./tables.ts";
import { probe } from "./probe.ts";
import { revisionReader, withFallback, WORK_TIMEOUT_MS } from "./fallback_lanes.ts";
import type { PostgresUrl } from "./url.ts";

/** How a PostgreSQL database is opened. */
export interface PostgresOptions {
  /** What for: `create` makes tables where there are none, `write` and `read` need them. @default {"create"} */
  readonly access?: Access;
  /** How many batches may be in flight at once, each on a connection of its own. @default {LANES} */
  readonly lanes?: number;
  /** Called with a problem that an operator should know of; no data is lost by it. @default does nothing */
  readonly onWarning?: ((message: string) => void) | undefined;
}

/**
 * With eight, a plant waits as long for commits of 5 ms, and a tenth less for commits of 20 ms; and its batch is half as
 * large, while each lane is one of the database's connections (`test/bench/lanes.ts`).
 */
export const LANES = 4;

type Access = "create" | "write" | "read";

/**
 * How long reading the schema and bringing it up to date may take when a database is opened, in milliseconds: that a
 * commit waits for a standby which is not there, nothing else ends.
 */
const SCHEMA_TIMEOUT_MS = 10_000;
/** How long who migrates alone waits, in milliseconds: a change to a large table takes hours, and a signal ends it. */
const MIGRATE_TIMEOUT_MS = 24 * 60 * 60 * 1_000;
/** How long a probe may take, in milliseconds: its verdict is older than a second then. */
const PROBE_TIMEOUT_MS = 1_000;
/** How much later its connection is closed, in milliseconds: commits that are only slow cost the plants' lanes none. */
const PROBE_GRACE_MS = 2_000;
/** Of the time that `add` has, what the database may take: the rest is for telling its caller why it failed. */
const ADD_SHARE = 0.9;

/**
 * Opens a database on PostgreSQL, and brings its schema up to date unless it is only read. Connections are lost and
 * reopened without a log line: `failed` never resolves, because the server made durable what it acknowledged.
 *
 * @throws {DatabaseError} If it cannot be used now; the message says why, in one line.
 */
export async function openPostgres(url: PostgresUrl, options: PostgresOptions = {}): Promise<Database> {
  const { access = "create", lanes: laneCount = LANES, onWarning = () => {} } = options;
  const counts: LaneCounts = { reconnections: 0, retries: 0, done: 0, durationMs: 0 };
  const writable = access !== "read";
  const connector = connectorTo(url, onWarning);
  const openOptions = { writable, timeoutMs: SCHEMA_TIMEOUT_MS };
  const verify = tablesVerifier({ writable, onWarning });
  await connected(url, connector, openOptions, async (connection) => {
    await requireSchema(connection, access);
    await verify(connection);
    if (writable) await requirePrivileges(connection);
  });
  const connect = (timeoutMs: number) => connector({ writable, timeoutMs, verify });
  const lanes = createLanes(laneCount, () => createLane(connect, counts));
  // Beside the others: a plant is not to wait for a token, nor is reading, which waits for no standby, for writing.
  const writing = createLanes(1, () => createLane(connect, counts));
  // The second connects while the first is left out: a revocation is not to wait until a statement that hangs has ended.
  const reading = createLanes(2, () =>
    createLane((timeoutMs) => connector({ writable, timeoutMs, verify, statementTimeoutMs: WORK_TIMEOUT_MS }), counts),
  );
  const [write, read] = [withFallback(writing, lanes), withFallback(reading, lanes)];
  return {
    plants: plantStore(lanes),
    tokens: {
      list: () => read(listTokens),
      revision: revisionReader(read),
      add: (token) => write((connection, attempt) => addToken(connection, token, attempt)),
      revoke: (name, at) => write((connection, attempt) => revokeToken(connection, name, at, attempt)),
      delete: async (name) => (await write(deleteToken(name))) > 0,
      prune: (at) => write(pruneTokens(at)),
      recordUses: (uses) => write((connection) => recordTokenUses(connection, uses)),
    },
    pages: () => keysetPages((from) => readable(url, read(readPage(from)))),
    metrics: () => databaseMetrics(counts, [lanes, writing, reading]),
    failed: new Promise(() => {}),
    async [Symbol.asyncDispose]() {
      for (const each of [lanes, writing, reading]) each.close();
    },
  };
}

/** The plants' store on their lanes. The probe is on these, too, because what blocks all of them blocks every plant. */
export function plantStore(lanes: Lanes): PlantStore {
  return {
    add: (batch, { timeoutMs }) => {
      const limitMs = timeoutMs * ADD_SHARE;
      const deadline = performance.now() + limitMs;
      return lanes.run((connection) => addPlants(connection, batch, deadline), limitMs);
    },
    probe: () => {
      const probed = lanes.run(probe, PROBE_TIMEOUT_MS, PROBE_GRACE_MS);
      return withDeadline(probed, PROBE_TIMEOUT_MS, () => {
        throw unavailable(new PostgresFailure("DEADLINE"));
      });
    },
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
  return connected(url, connectorTo(url, onWarning), options, dryRun ? pendingMigrations : migrate);
}

/** Connects once, so that what is wrong is said at the start. */
async function connected<Result>(
  url: PostgresUrl,
  connector: ReturnType<typeof connectorTo>,
  { writable, timeoutMs }: ConnectionOptions,
  use: (connection: Connection) => Promise<Result>,
): Promise<Result> {
  try {
    const connection = await connector({ writable, timeoutMs: url.connectTimeoutMs * url.hosts.length });
    return await withDeadline(use(connection), timeoutMs, () => {
      throw new PostgresFailure("DEADLINE");
    }).finally(connection.close);
  } catch (error) {
    throw toDatabaseError("open", url, error);
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
    throw toDatabaseError("read", url, error instanceof PlantStoreError ? error.cause : error);
  }
}

/** In one line that names the database. Anything that was not foreseen is a bug, and stays as it is. */
function toDatabaseError(action: string, { database }: PostgresUrl, error: unknown): unknown {
  if (!(error instanceof DatabaseError || error instanceof PostgresFailure)) return error;
  return new DatabaseError(`Cannot ${action} database "${database}": ${error.message}`, { cause: error });
}
