import { afterAll, beforeAll, setDefaultTimeout } from "bun:test";

import type { Database } from "../../src/database/database.ts";
import {
  openPostgres as openReached,
  type PostgresOptions,
  reach,
} from "../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl, type PostgresUrl } from "../../src/database/postgres/url.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import {
  type ClusterOptions,
  CONNECT_TIMEOUT,
  type PostgresCluster,
  startCluster,
} from "./postgres.ts";
import { TEST_TIMEOUT_MS } from "./program.ts";

/** What the tests of a `describe` need of PostgreSQL. */
export interface WithClusterOptions extends ClusterOptions {
  /** What each of them may take, in milliseconds. @default {TEST_TIMEOUT_MS} */
  readonly timeoutMs?: number;
}

/**
 * Starts a PostgreSQL for the tests of a `describe`, and ends it after them.
 *
 * @returns The cluster, for use in tests and hooks: it is not there before.
 */
export function withCluster({ timeoutMs = TEST_TIMEOUT_MS, ...options }: WithClusterOptions = {}) {
  let cluster: PostgresCluster | undefined;
  setDefaultTimeout(timeoutMs);

  beforeAll(async () => {
    cluster = await startCluster(options);
  });
  afterAll(() => cluster?.[Symbol.asyncDispose]());

  return (): PostgresCluster => {
    if (cluster === undefined) throw new Error("The cluster is used before its tests");
    return cluster;
  };
}

/** Opens the database of a URL. */
export async function openPostgres(url: PostgresUrl, options?: PostgresOptions) {
  using reached = await reach(url);
  return await openReached(reached, options);
}

/**
 * Probes until the server replies in time: on a busy machine, a connection alone may take the
 * second that a probe has.
 *
 * @throws {unknown} What a probe rejects with that got its reply.
 */
export async function probe({ plants }: Pick<Database, "plants">): Promise<void> {
  for (;;) {
    try {
      return await plants.probe();
    } catch (error) {
      // Not by class: a fork has its own.
      if ((error as { cause?: { code?: string } }).cause?.code !== "DEADLINE") throw error;
    }
  }
}

/** How to open a database of its own. */
export interface OpenOptions extends PostgresOptions {
  /** What is between the client and the server: the hosts of the URL. @default nothing */
  readonly proxies?: readonly { readonly port: number }[];
  /** The name that they have. @default {"127.0.0.1"} */
  readonly host?: string;
  /** @default the one that may do everything */
  readonly role?: string;
  readonly password?: string;
  /** The query of the URL. @default {"?connect_timeout=60"} */
  readonly parameters?: string;
}

/** A new database, opened as a server opens it, with the means to look at it from outside. */
export async function openDatabase(cluster: PostgresCluster, options: OpenOptions = {}) {
  const {
    proxies = [cluster],
    host = "127.0.0.1",
    parameters = `?${CONNECT_TIMEOUT}`,
    ...rest
  } = options;
  const { role = "postgres", password = "" } = options;
  await using stack = new AsyncDisposableStack();
  const created = stack.use(await cluster.newDatabase());

  // Create the tables first: proxies and the limits of a role must not get in the way.
  await (await openPostgres(parsePostgresUrl(created.url)))[Symbol.asyncDispose]();
  if (role !== "postgres") await created.run(`GRANT ALL ON ALL TABLES IN SCHEMA public TO ${role}`);

  const hosts = proxies.map(({ port }) => `${host}:${port}`).join();
  const url = `postgres://${role}:${password}@${hosts}/${created.name}${parameters}`;
  const database = stack.use(await openPostgres(parsePostgresUrl(url), rest));
  const opened = stack.move();

  return {
    ...created,
    ...database,
    add: (plants: readonly NewPlant[], timeoutMs = TEST_TIMEOUT_MS) =>
      database.plants.add(plants, { timeoutMs }),
    /** The value of a metric, named without its common prefix. */
    metric: (name: string) =>
      database.metrics().find((metric) => metric.name === `plant_store_postgres_${name}`)?.value ??
      Number.NaN,
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}
