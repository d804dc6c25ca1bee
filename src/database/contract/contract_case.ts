import type { Database } from "../database.ts";

/** One promise of a port as a test: a test runner takes the two as they are. */
export interface ContractCase {
  /** What is promised, as a sentence. */
  readonly name: string;
  /** Rejects with an `AssertionError` of `node:assert` if the adapter does not keep the promise. */
  readonly run: () => Promise<void>;
}

/** Opens a new, empty database, or those parts of one that a contract needs. Each case disposes of its own. */
export type OpenDatabase<Part extends keyof Database = keyof Database> = () => Promise<
  Pick<Database, Part> & AsyncDisposable
>;

/** What is promised of which method, and what shows it on an empty database. */
export type Cases<Part extends keyof Database> = Readonly<
  Record<string, (database: Pick<Database, Part>) => Promise<void>>
>;

/** What shows a promise on an empty database and the same one opened once more, beside it. */
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

/** The cases that need the same database twice; none if it cannot be opened once more. */
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

/** How long a store may try, in milliseconds: a busy machine does not break the contract. */
export const TIMEOUT_MS = 60_000;
