/**
 * The port of SQLite's drivers, bun:sqlite and node:sqlite: one connection to one file. Disposing
 * of it closes it, with all of its statements. Every call blocks the thread until SQLite responds.
 * What a call throws has SQLite's extended result code (`resultCodeOf`).
 */
export interface Connection extends Disposable {
  /** The path by which the file was opened, which may be a link. */
  readonly filename: string;
  /** Runs a script. On Deno its errors have no code. */
  exec(sql: string): unknown;
  /** Runs one statement that returns no rows. */
  run(sql: string): unknown;
  /** Runs a query, which is compiled once and closed with the connection. Returns its rows. */
  all(sql: string): readonly unknown[];
  /** Opens another connection to the file, which only reads. */
  openReader(): Connection;
}

/** Opens a file with one of the drivers; neither creates one that is not there. */
export type OpenFile<Driver extends Connection> = (
  file: string,
  options: { readonly readonly: boolean },
) => Driver;

/** The number in the first column of the first row of a query. */
export function numberFrom(connection: Connection, query: string): number {
  return Number(firstRow(connection, query)[0]);
}

/** The columns of the first row of a query. */
export function firstRow(connection: Connection, query: string): readonly unknown[] {
  return Object.values(connection.all(query)[0] ?? {});
}

/**
 * Runs a function in a transaction that may write. What the function does is on the disk when this
 * returns. If this throws, nothing of it is stored, or all of it if an fsync failed.
 */
export function transaction<Result>(connection: Connection, run: () => Result): Result {
  connection.run("BEGIN IMMEDIATE");
  try {
    const result = run();
    connection.run("COMMIT");
    return result;
  } catch (error) {
    rollBack(connection);
    throw error;
  }
}

function rollBack(connection: Connection): void {
  try {
    connection.run("ROLLBACK");
  } catch {
    // SQLite itself has rolled back, as it does on a full disk.
  }
}
