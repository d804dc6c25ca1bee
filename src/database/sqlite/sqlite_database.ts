import { type Database, keysetPages } from "../database.ts";
import { addingPlants } from "./adding.ts";
import type { Client } from "./bun_driver.ts";
import { sqliteMetrics } from "./checkpoint.ts";
import { BUSY_TIMEOUT_MS } from "./opening.ts";
import { readPage } from "./pages.ts";
import { storeOf, type StoreOptions } from "./store.ts";
import { type SqliteTokens, sqliteTokens } from "./tokens.ts";

/** A SQLite database on this thread. */
export interface SqliteDatabase extends Database {
  readonly tokens: SqliteTokens;
  /** Marks the file as corrupt, and fails the database. */
  reportCorruption(finding: string): void;
}

/**
 * The plants and tokens of a connection that may write, by Drizzle's statements. Disposing of it
 * closes the connection.
 */
export function sqliteDatabase(
  client: Client,
  options: Partial<Omit<StoreOptions, "addPlant">> = {},
): SqliteDatabase {
  const { walBytes = new Float64Array(1), background } = options;
  const store = storeOf(client, {
    lockTimeoutMs: BUSY_TIMEOUT_MS,
    ...options,
    walBytes,
    addPlant: addingPlants(client),
  });
  const pageFrom = readPage(client);

  return {
    plants: store,
    storeOf: () => store,
    unready: () => [],
    tokens: sqliteTokens(client, store),
    pages: () => keysetPages(pageFrom),
    metrics: () => sqliteMetrics(walBytes[0], store.checkpointFailures()),
    failed: store.failed,
    reportCorruption: store.reportCorruption,

    async [Symbol.asyncDispose]() {
      await background?.close();
      store.close();
    },
  };
}
