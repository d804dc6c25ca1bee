/**
 * A durable store of plants in a SQLite file, for Node, Deno and Bun.
 *
 * @module
 */
export { type SqliteStore, sqliteStore, type SqliteStoreOptions } from "./sqlite_store.ts";
