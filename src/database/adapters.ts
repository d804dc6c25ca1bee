import { CommandError, PlantStoreError, reasonOf } from "../errors.ts";
import type { DatabaseAdapter } from "./adapter.ts";
import { PostgresFailure } from "./postgres/errors.ts";
import type { PostgresUrl } from "./postgres/url.ts";
import { sqliteAdapter } from "./sqlite/sqlite_adapter.ts";

/** The adapter of a database, and where the database is. */
export type DatabaseLocation =
  | { readonly adapter: "sqlite"; readonly path: string }
  | { readonly adapter: "postgres"; readonly url: PostgresUrl };

/**
 * The adapter of a database. Loads that of PostgreSQL only if it is used.
 *
 * @param readUrl Reads the URL of a database on PostgreSQL again, whose password may be rotated.
 *   @default the URL stays the same
 */
export async function adapterOf(
  location: DatabaseLocation,
  readUrl?: () => Promise<PostgresUrl>,
): Promise<DatabaseAdapter> {
  if (location.adapter === "sqlite") return sqliteAdapter(location.path);
  const { postgresAdapter } = await import("./postgres/postgres_adapter.ts");
  return postgresAdapter(location.url, readUrl);
}

/** What a command was doing when storage refused. */
export interface RefusedAction {
  /** What cannot be done, such as `list the tokens`. */
  readonly action: string;
  /** The name of the database in messages. */
  readonly database: string;
  /** What to do about it. @default nothing */
  readonly advice?: string;
}

/**
 * Turns a refusal of the storage into one line for the user of a command; returns any other error
 * unchanged.
 */
export function toCommandError(
  error: unknown,
  { action, database, advice }: RefusedAction,
): unknown {
  const reason = reasonOfRefusal(error);
  if (reason === undefined) return error;
  const ending = advice === undefined ? "" : `; ${advice}`;
  return new CommandError(`Cannot ${action} in database "${database}": ${reason}${ending}`, {
    cause: error,
  });
}

/** Why storage refused, in words for the operator: the message of the error is for clients. */
export function reasonOfRefusal(error: unknown): string | undefined {
  // Closing the database failed as well: the first error says more.
  if (error instanceof SuppressedError) return reasonOfRefusal(error.suppressed);
  if (error instanceof PostgresFailure) return error.message;
  if (!(error instanceof PlantStoreError) || error.code !== "storage_unavailable") return undefined;
  return reasonOf(error.cause ?? "storage is unavailable");
}
