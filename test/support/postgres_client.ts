import { SQL } from "bun";
import { SUPERUSER } from "./postgres_template.ts";

/** Runs statements one after another, and gives the rows of the last one. */
export type Run = (...statements: string[]) => Promise<readonly Record<string, unknown>[]>;

/** The URL of a database on this machine. */
export function urlOf(port: number, database: string, username = SUPERUSER): string {
  return `postgres://${username}@127.0.0.1:${port}/${database}`;
}

/** A client of one connection. */
export function connectTo(port: number, database: string): SQL {
  // Not prepared: a statement may be run again after the tables were made anew, with other columns.
  return new SQL({ url: urlOf(port, database), username: SUPERUSER, database, max: 1, prepare: false });
}

/** A client on one connection that is kept: a new one costs PostgreSQL more than most statements. */
export function createClient(connect: () => SQL) {
  let client: SQL | undefined;
  return {
    /** Runs statements, and gives the rows of the last one. */
    run: (async (...statements) => {
      client ??= connect();
      let rows: readonly Record<string, unknown>[] = [];
      for (const statement of statements) rows = [...(await client.unsafe(statement))];
      return rows;
    }) satisfies Run as Run,
    async disconnect(): Promise<void> {
      await client?.close({ timeout: 0 });
      client = undefined;
    },
  };
}
