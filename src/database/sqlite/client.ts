import { Database as Client } from "bun:sqlite";

import { DatabaseError } from "../database.ts";

// "Database" is our port: everywhere in this room, the class of bun:sqlite is the client.
export { Client };

/** The number in the first column of the first row of a query. */
export function numberFrom(client: Client, query: string): number {
  return Number(client.query(query).values()[0]?.[0]);
}

/**
 * Applies a setting, and reads it back: SQLite ignores one that it cannot apply.
 *
 * @param expected What SQLite calls the value.
 * @throws {DatabaseError} If the setting has another value afterwards.
 */
export function setPragma(
  client: Client,
  name: string,
  value: string | number,
  expected: unknown,
): void {
  client.query(`PRAGMA ${name} = ${value}`).all();
  const actual = client.query(`PRAGMA ${name}`).values()[0]?.[0];

  if (actual !== expected)
    throw new DatabaseError(`it refuses ${name} = ${value} (it is ${actual})`);
}
