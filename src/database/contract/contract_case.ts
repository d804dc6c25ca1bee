import type { Database } from "../database.ts";

/** One promise of a port as a test. Pass both members to the `test` of any test runner. */
export interface ContractCase {
  /** The promise, as a sentence. */
  readonly name: string;
  /** Rejects with an `AssertionError` of `node:assert` if the adapter does not keep the promise. */
  readonly run: () => Promise<void>;
}

/** Opens a new, empty database, or the parts of one that a contract needs. Each case disposes of its own. */
export type OpenDatabase<Part extends keyof Database = keyof Database> = () => Promise<
  Pick<Database, Part> & AsyncDisposable
>;

/** Promises by name, each with a function that checks it on an empty database. */
export type Cases<Part extends keyof Database> = Readonly<
  Record<string, (database: Pick<Database, Part>) => Promise<void>>
>;

/** Promises by name, each with a function that checks it on an empty database that is opened twice. */
export type CasesOfTwo<Part extends keyof Database> = Readonly<
  Record<string, (database: Pick<Database, Part>, beside: Pick<Database, Part>) => Promise<void>>
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

/** The cases that open the same database twice; none if that is impossible. */
export function casesOfTwo<Part extends keyof Database>(
  port: "PlantStore" | "TokenStore",
  { open, reopen }: { readonly open: OpenDatabase<Part>; readonly reopen: OpenDatabase<Part> | undefined },
  cases: CasesOfTwo<Part>,
): ContractCase[] {
  if (reopen === undefined) return [];
  return Object.entries(cases).map(([name, check]) => ({
    name: `${port}.${name}`,
    async run() {
      await using database = await open();
      await using beside = await reopen();
      await check(database, beside);
    },
  }));
}

/** The timeout of a store, in milliseconds: long, because a busy machine does not break the contract. */
export const TIMEOUT_MS = 60_000;
