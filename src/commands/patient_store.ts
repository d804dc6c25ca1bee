import { SQLiteError } from "bun:sqlite";
import { checkpointer } from "../adapters/sqlite/checkpoint.ts";
import { openDatabase } from "../adapters/sqlite/connection.ts";
import { isFailedSync } from "../adapters/sqlite/errors.ts";
import { sqliteStore } from "../adapters/sqlite/plants.ts";
import type { NewPlant } from "../plant.ts";
import type { AddOutcome, PlantStore } from "../plant_store.ts";
import type { Progress } from "./progress.ts";

/** How long SQLite waits for a lock before the signals are looked at, in milliseconds. */
const BUSY_TIMEOUT = 500;

/**
 * Opens a store with the patience of somebody who shares it with a server: it waits for locks as long as it takes.
 *
 * @param stop Ends the wait.
 * @throws {DatabaseFileError} If the file cannot be used.
 */
export function openPatientStore(
  path: string,
  { print }: Pick<Progress, "print">,
  stop: AbortSignal,
): Pick<PlantStore, "add"> & AsyncDisposable {
  const client = openDatabase(path);
  client.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT}`);
  const store = sqliteStore(client);
  const checkpoint = checkpointer(client);
  let waits = false;

  async function add(plants: readonly NewPlant[]): Promise<readonly AddOutcome[]> {
    try {
      return await store.add(plants);
    } catch (error) {
      if (!isBusy(error) || stop.aborted) throw error;
      if (!waits) print("Waiting: another process is writing to the database\n");
      waits = true;
      // SQLite waits on this thread, and signals come between its tries.
      await new Promise((resolve) => setImmediate(resolve));
      return add(plants);
    }
  }

  return {
    async add(plants) {
      const outcomes = await add(plants);
      tryCheckpoint(checkpoint);
      return outcomes;
    },
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}

function isBusy(error: unknown): boolean {
  return (
    error instanceof Error && error.cause instanceof SQLiteError && error.cause.code?.startsWith("SQLITE_BUSY") === true
  );
}

/** One that fails for lack of space, say, loses nothing: the WAL has it all. */
function tryCheckpoint(checkpoint: () => void): void {
  try {
    checkpoint();
  } catch (error) {
    if (isFailedSync(error)) throw error;
  }
}
