import { CommandError, type ErrorCode, PlantStoreError, reasonOf } from "../errors.ts";
import { DatabaseFailure } from "./database.ts";

/** The action of a command that storage has refused. */
export interface RefusedAction {
  /** A verb and its object: `list the tokens`. */
  readonly action: string;
  /** The name of the database in messages. */
  readonly database: string;
  /** What to do if it may be done nevertheless. @default nothing */
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
  // As it is, PostgreSQL's own error: it refused, as for a lack of privileges, and did nothing.
  const ending = advice === undefined || error instanceof DatabaseFailure ? "" : `; ${advice}`;
  return new CommandError(`Cannot ${action} in database "${database}": ${reason}${ending}`, {
    cause: error,
  });
}

/** Why storage refused, in words for the operator: the message of the error is for clients. */
export function reasonOfRefusal(error: unknown): string | undefined {
  // Closing the database failed as well: the first error says more.
  if (error instanceof SuppressedError) return reasonOfRefusal(error.suppressed);
  if (error instanceof DatabaseFailure) return error.message;
  if (!(error instanceof PlantStoreError) || !OF_STORES.includes(error.code)) return undefined;
  return reasonOf(error.cause ?? "storage is unavailable");
}

/** What a store throws, by its port. */
const OF_STORES: readonly ErrorCode[] = ["storage_unavailable", "internal"];
