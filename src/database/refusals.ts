import { CommandError, type ErrorCode, PlantStoreError, reasonOf } from "../errors.ts";
import { DatabaseFailure } from "./database.ts";

/** An action of a command that the storage refused. */
export interface RefusedAction {
  /** A verb and its object: `list the tokens`. */
  readonly action: string;
  /** The name of the database in messages. */
  readonly database: string;
  /** What to do in case the action was done all the same. @default nothing */
  readonly advice?: string;
}

/**
 * Turns a refusal by the storage into one line for the user of a command. Returns any other error unchanged.
 */
export function toCommandError(
  error: unknown,
  { action, database, advice }: RefusedAction,
): unknown {
  const reason = reasonOfRefusal(error);
  if (reason === undefined) return error;
  // No advice for PostgreSQL's own error, such as a missing privilege: nothing was done.
  const ending = advice === undefined || error instanceof DatabaseFailure ? "" : `; ${advice}`;
  return new CommandError(`Cannot ${action} in database "${database}": ${reason}${ending}`, {
    cause: error,
  });
}

/** Returns why the storage refused, for the operator. The message of the error itself is for clients. */
export function reasonOfRefusal(error: unknown): string | undefined {
  // Closing the database failed as well. The first error says more.
  if (error instanceof SuppressedError) return reasonOfRefusal(error.suppressed);
  if (error instanceof DatabaseFailure) return error.message;
  if (!(error instanceof PlantStoreError) || !OF_STORES.includes(error.code)) return undefined;
  return reasonOf(error.cause ?? "storage is unavailable");
}

/** The codes that a store throws. */
const OF_STORES: readonly ErrorCode[] = ["storage_unavailable", "internal"];
