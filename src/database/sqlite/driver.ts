import type { NewPlant } from "../../plant/plant.ts";

/**
 * A connection to a file, through bun:sqlite or node:sqlite. Disposing of it closes it and its statements.
 * Every call blocks the thread until SQLite returns. Errors have SQLite's extended result code
 * (`resultCodeOf`).
 *
 * The interface is that of bun:sqlite, so that bun:sqlite needs no wrapper.
 */
export interface SqliteConnection extends Disposable {
  /** The path that was opened, which may be a symbolic link. */
  readonly filename: string;
  /** Runs a script. On Deno, its errors have no code. */
  exec(sql: string): unknown;
  /** Returns a statement, which is compiled once and closed with the connection. */
  query(sql: string): Query;
  /**
   * Makes a function that runs in a write transaction (`BEGIN IMMEDIATE`). When it returns, the transaction is
   * on the disk. When it throws, nothing is stored, except that after a failed fsync all may be.
   */
  transaction<Args extends readonly unknown[], Result>(
    run: (...args: Args) => Result,
  ): { readonly immediate: (...args: Args) => Result };
  /** Opens a read-only connection to the same file. */
  openReader(): SqliteConnection;
}

/** A statement. Each call runs it to its end. */
export interface Query {
  /** Returns its rows as objects. */
  all(): readonly unknown[];
  /** Returns its rows as arrays of columns. */
  values(): readonly (readonly unknown[])[];
}

/** A driver's statements for plants, within a transaction. */
export interface PlantRows {
  /** Inserts a plant. Returns false, and changes nothing, if its id is taken. */
  insert(plant: NewPlant): boolean;
  /** Reads the plant with an id. */
  find(id: bigint): NewPlant | undefined;
}

/** A driver of SQLite. */
export interface Driver<Opened extends SqliteConnection> {
  /** Opens an existing file. */
  open(file: string, options: { readonly readonly: boolean }): Opened;
  /** Disables copy on write for an empty file, like `chattr +C`, if the system can. */
  disableCopyOnWrite(path: string): void;
}

/** Runs a query, and returns the first column of its first row. */
export function valueFrom(connection: SqliteConnection, query: string): unknown {
  return connection.query(query).values()[0]?.[0];
}

/** Runs a query, and returns the first column of its first row as a number. */
export function numberFrom(connection: SqliteConnection, query: string): number {
  return Number(valueFrom(connection, query));
}
