import { Database, SQLiteError } from "bun:sqlite";
import { statSync } from "node:fs";
import { asc, gte, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import { INT64_MAX, INT64_MIN } from "../../plant.ts";
import { DatabaseFileError } from "./errors.ts";
import { APPLICATION_ID, MIGRATIONS } from "./migrations.ts";
import { plants } from "./schema.ts";

/** A stored plant as its row has it: an absent tag is `null`. */
export type PlantRow = typeof plants.$inferSelect;

/** A database that is only read, also while a server writes to it. */
export interface PlantReader extends Disposable {
  /**
   * Every plant that is stored when this begins, ordered by id, and perhaps some that come later. Between two pages
   * nothing is held: no lock, and no snapshot that would keep the WAL from being checkpointed.
   *
   * @throws {DatabaseFileError} If the file cannot be read.
   */
  pages(): Iterable<readonly PlantRow[]>;
}

/**
 * Opens a plant-store's database for reading. Makes no database and changes none.
 *
 * @throws {DatabaseFileError} If there is no such file, or it is not a plant-store's, or a newer one's.
 */
export function openReader(path: string): PlantReader {
  const client = readable(path, () => openReadOnly(path));
  const query = readable(path, () => client.prepare<PlantRow, [bigint, number]>(pageQuery(client)));
  return {
    pages: () => pages((from) => readable(path, () => pageOf(query.iterate(from, PAGE_PLANTS)))),
    [Symbol.dispose]: () => client.close(),
  };
}

/** A copy that is being made. Disposing of it gives up what is not done. */
export interface DatabaseCopy extends Disposable {
  /**
   * Resolves when the copy is complete.
   *
   * @throws {DatabaseFileError} If the database cannot be read, or the copy cannot be written.
   */
  readonly done: Promise<void>;
}

/**
 * Copies a plant-store's database, as it is at one moment after the call, into a new file. Writers are not held up.
 * A copy that was given up can still be writing for a moment: it needs a directory of its own that is removed with it.
 *
 * @throws {DatabaseFileError} If there is no such file, or it is not a plant-store's, or a newer one's.
 */
export function copyDatabase(path: string, target: string): DatabaseCopy {
  readable(path, () => openReadOnly(path)).close();
  const worker = new Worker(URL.createObjectURL(new Blob([VACUUM], { type: "text/javascript" })));
  const done = Promise.withResolvers<void>();
  const fail = (message: string) => done.reject(new DatabaseFileError(`Cannot copy database "${path}": ${message}`));
  worker.addEventListener("message", ({ data }: MessageEvent<{ readonly failure?: string }>) =>
    data.failure === undefined ? done.resolve() : fail(data.failure),
  );
  worker.addEventListener("error", ({ message }) => fail(message));
  worker.postMessage({ path, target });
  return { done: done.promise, [Symbol.dispose]: () => worker.terminate() };
}

/**
 * VACUUM holds its thread until all is copied, and the program's own thread has to hear of a signal. As text, because
 * a Worker of a file of its own would have to be an entry point of the build.
 */
const VACUUM = `
  import { Database } from "bun:sqlite";
  self.addEventListener("message", ({ data: { path, target } }) => {
    try {
      using client = new Database(path, { readonly: true });
      client.run("PRAGMA busy_timeout = 5000");
      client.run("VACUUM INTO ?", [target]);
      self.postMessage({});
    } catch (error) {
      self.postMessage({ failure: String(error.message) });
    }
  });
`;

function openReadOnly(path: string): Database {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats?.isFile()) throw new DatabaseFileError(stats ? "it is not a file" : "there is no such file");
  const client = new Database(path, { readonly: true, safeIntegers: true, strict: true });
  try {
    client.run("PRAGMA busy_timeout = 5000");
    requireOurs(client);
    return client;
  } catch (error) {
    client.close();
    throw error;
  }
}

function requireOurs(client: Database): void {
  const id = client.query("PRAGMA application_id").values()[0]?.[0];
  if (id !== BigInt(APPLICATION_ID)) throw new DatabaseFileError("it is not a plant-store's database");
  const last = client.query("SELECT max(created_at) FROM __drizzle_migrations").values()[0]?.[0];
  // A newer one may keep more of a plant than is known here.
  if (!MIGRATIONS.some(({ when }) => when >= Number(last))) {
    throw new DatabaseFileError("it was made by a newer plant-store");
  }
}

/** A page ends at this many plants, or sooner: */
const PAGE_PLANTS = 4_000;
/** when it holds this many characters, because a name may be long. */
const PAGE_CHARACTERS = 2 ** 20;

/** Drizzle writes the query; bun:sqlite's own statement can be left in the middle of its rows. */
function pageQuery(client: Database): string {
  const query = drizzle({ client })
    .select()
    .from(plants)
    .where(gte(plants.id, sql.placeholder("from")))
    .orderBy(asc(plants.id))
    .limit(sql.placeholder("limit"));
  return query.toSQL().sql;
}

/** Plants are never changed and never deleted, so the next page can begin where the last one ended. */
function* pages(pageFrom: (id: bigint) => readonly PlantRow[]): Iterable<readonly PlantRow[]> {
  let page = pageFrom(INT64_MIN);
  for (let last = page.at(-1); last !== undefined; last = page.at(-1)) {
    yield page;
    page = last.id === INT64_MAX ? [] : pageFrom(last.id + 1n);
  }
}

/** Leaving the loop early resets the statement, which ends its read transaction. */
function pageOf(rows: Iterable<PlantRow>): readonly PlantRow[] {
  const page: PlantRow[] = [];
  let characters = 0;
  for (const row of rows) {
    page.push(row);
    characters += row.name.length + (row.tag?.length ?? 0);
    if (characters >= PAGE_CHARACTERS) break;
  }
  return page;
}

function readable<Result>(path: string, read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    throw new DatabaseFileError(`Cannot read database "${path}": ${reasonOf(error)}`, { cause: error });
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof SQLiteError && error.code?.startsWith("SQLITE_READONLY")) {
    // Where the last one to close the database removed the WAL, whoever opens it makes it again.
    return "SQLite has to be able to write beside it; run this as the user who runs the server";
  }
  return error instanceof Error ? error.message : String(error);
}
