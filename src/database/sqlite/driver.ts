import { backoffMs, pause } from "../../async/timers.ts";
import { DatabaseError } from "../database.ts";

/** What the clients of bun:sqlite and node:sqlite have in common. */
export interface SqlClient {
  /** Runs a script. On Deno its errors have no code. */
  exec(sql: string): unknown;
  /** Runs a statement, which is compiled once and closed with the client. */
  all(sql: string): readonly unknown[];
}

/** The number in the first column of the first row of a query. */
export function numberFrom(client: SqlClient, query: string): number {
  return Number(firstRow(client, query)[0]);
}

/**
 * Applies a setting, and reads it back: SQLite ignores one that it cannot apply.
 *
 * @param expected What SQLite calls the value.
 * @throws {DatabaseError} If the setting has another value afterwards.
 */
export function setPragma(
  client: SqlClient,
  name: string,
  value: string | number,
  expected: string | number = value,
): void {
  client.all(`PRAGMA ${name} = ${value}`);
  const actual = String(firstRow(client, `PRAGMA ${name}`)[0]);

  if (actual !== String(expected))
    throw new DatabaseError(`it refuses ${name} = ${value} (it is ${actual})`);
}

/** The columns of the first row of a query. */
export function firstRow(client: SqlClient, query: string): readonly unknown[] {
  return Object.values(client.all(query)[0] ?? {});
}

/**
 * Runs a function in a transaction that may write. What the function does is on the disk when this
 * returns. If this throws, nothing of it is stored, or all of it if an fsync failed.
 */
export function transaction<Result>(client: SqlClient, run: () => Result): Result {
  client.all("BEGIN IMMEDIATE");
  try {
    const result = run();
    client.all("COMMIT");
    return result;
  } catch (error) {
    rollBack(client);
    throw error;
  }
}

function rollBack(client: SqlClient): void {
  try {
    client.all("ROLLBACK");
  } catch {
    // SQLite itself has rolled back, as it does on a full disk.
  }
}

/**
 * Calls, and calls again while another process holds the lock. Waiting inside SQLite would block the
 * thread, and with it every other call.
 *
 * @param isLocked Whether an error of the call means that.
 * @param timeoutMs Then the last error is thrown.
 */
export async function retryWhileLocked<Result>(
  call: () => Result,
  isLocked: (error: unknown) => boolean,
  timeoutMs: number,
): Promise<Result> {
  const deadline = performance.now() + timeoutMs;

  for (let attempt = 0; ; attempt++) {
    try {
      return call();
    } catch (error) {
      if (!isLocked(error) || performance.now() >= deadline) throw error;
    }

    await pause(backoffMs(attempt, LONGEST_PAUSE_MS));
  }
}

/** How long to pause between two attempts, in milliseconds: SQLite itself looks every 100. */
const LONGEST_PAUSE_MS = 25;
