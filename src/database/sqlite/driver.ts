import type { NewPlant } from "../../plant/plant.ts";

/**
 * The port of SQLite's drivers, bun:sqlite and node:sqlite: one connection to one file. Disposing
 * of it closes it, with all of its statements. Every call blocks the thread until SQLite responds.
 * What a call throws has SQLite's extended result code (`resultCodeOf`).
 *
 * It has the names and the shapes of bun:sqlite, so that nothing stands between that and the store.
 */
export interface SqliteConnection extends Disposable {
  /** The path by which the file was opened, which may be a link. */
  readonly filename: string;
  /** Runs a script. On Deno its errors have no code. */
  exec(sql: string): unknown;
  /** A statement, which is compiled once and closed with the connection. */
  query(sql: string): Query;
  /**
   * Makes a function that runs in a transaction which may write (`BEGIN IMMEDIATE`). What it did is on
   * the disk when it returns. If it throws, nothing of that is stored, or all of it if an fsync failed.
   */
  transaction<Args extends readonly unknown[], Result>(
    run: (...args: Args) => Result,
  ): { readonly immediate: (...args: Args) => Result };
  /** Opens another connection to the file, which only reads. */
  openReader(): SqliteConnection;
}

/** One statement. Each call runs it to its end. */
export interface Query {
  /** Its rows as objects. */
  all(): readonly unknown[];
  /** Its rows as lists of their columns. */
  values(): readonly (readonly unknown[])[];
}

/** A driver's statements for plants, within a transaction. */
export interface PlantRows {
  /** Inserts a plant. Returns false, and changes nothing, if its id is taken. */
  insert(plant: NewPlant): boolean;
  /** Reads the plant under an id. */
  find(id: bigint): NewPlant | undefined;
}

/** One of the drivers. */
export interface Driver<Opened extends SqliteConnection> {
  /** Opens a file, and creates none that is not there. */
  open(file: string, options: { readonly readonly: boolean }): Opened;
  /** Makes an empty file one without copy on write, as `chattr +C` does, if the system can do that. */
  disableCopyOnWrite(path: string): void;
}

/** The first column of the first row of a query. */
export function valueFrom(connection: SqliteConnection, query: string): unknown {
  return connection.query(query).values()[0]?.[0];
}

/** The same as a number. */
export function numberFrom(connection: SqliteConnection, query: string): number {
  return Number(valueFrom(connection, query));
}
