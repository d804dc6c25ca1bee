import type { NewPlant } from "../../plant/plant.ts";
import type { Database } from "../database.ts";

/** One promise of a port as a test. Pass both members to the `test` of any test runner. */
export interface ContractCase {
  /** The promise, as a sentence. */
  readonly name: string;
  /** Rejects with an `AssertionError` of `node:assert` if the adapter does not keep the promise. */
  readonly run: () => Promise<void>;
}

/**
 * Opens a new, empty database, or the parts of one that a contract needs. Each case disposes of its
 * own.
 */
export type OpenDatabase<Part extends keyof Database = keyof Database> = () => Promise<
  Pick<Database, Part> & AsyncDisposable
>;

/** Promises by name, each with a function that checks it on an empty database. */
export type Cases<Part extends keyof Database> = Readonly<
  Record<string, (database: Pick<Database, Part>) => Promise<void>>
>;

/** The cases of a port, each with a database of its own. */
export function contractCases<Part extends keyof Database>(
  port: "Database" | "PlantStore" | "TokenStore",
  open: OpenDatabase<Part>,
  cases: Cases<Part>,
): ContractCase[] {
  return Object.entries(cases).map(([name, check]) => ({
    name: `${port}.${name}`,
    async run() {
      await using database = await open();
      await check(database);
    },
  }));
}

/** Adds a batch, with a long timeout: a busy machine does not break the contract. */
export function add({ plants }: Pick<Database, "plants">, batch: readonly NewPlant[]) {
  return plants.add(batch, { timeoutMs: 60_000 });
}
