import { eq, getTableColumns, type SQL, sql, type SQLChunk } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";

import type { AddOutcome, StoreOutcome } from "../../group_commit/plant_store.ts";
import {
  type ColumnValue,
  columnValue,
  kindOf,
  type NewPlant,
  type Plant,
  plantOfRow,
  samePlant,
} from "../../plant/plant.ts";
import type { Connection } from "./connection.ts";
import { codeOf } from "./errors.ts";
import { HeldIds } from "./held_ids.ts";
import { insertBesideLocks } from "./lock_search.ts";
import { bigintArray, COLUMN_KINDS, plants } from "./schema.ts";
import { DURABILITY, type Durability, requireDurable } from "./session.ts";

// Adds batches of plants. The probe runs the same statements.

const { placeholder } = sql;

/** Builds the SQL of the statements, once. The statements run on a `Connection`. */
const db = drizzle.mock();

/** The fields, in the order of the columns that INSERT fills. Each is sent as an array. */
const FIELDS = Object.keys(getTableColumns(plants)) as (keyof NewPlant)[];
const ARRAYS = FIELDS.map(
  (field) => sql`${placeholder(field)}::${sql.raw(plants[field].getSQLType())}[]`,
);
/** The columns of a returned row, each aliased to the name of its field. */
export const ROW = Object.fromEntries(
  FIELDS.map((field) => [field, sql<string | null>`${plants[field]}`.as(field)]),
) as Record<keyof NewPlant, SQL.Aliased<string | null>>;

/** Selects every plant, ordered by id. */
export const SELECT_ALL = db.select(ROW).from(plants).orderBy(plants.id).toSQL().sql;

/** In the SELECT list, the `unnest`s run in lockstep. In FROM, PostgreSQL would first store each result. */
const INSERT = db
  .insert(plants)
  .select(sql`SELECT ${list(ARRAYS.map((array) => sql`unnest(${array})`))}`)
  // Only for the id: a conflict in an operator's own unique index is an error, not a stored plant.
  .onConflictDoNothing({ target: plants.id })
  .returning(ROW)
  .toSQL().sql;

/** Copies the lines of {@linkcode copyLines} into the table. */
export const COPY_PLANTS = `COPY plants (${FIELDS.map((field) => `"${plants[field].name}"`).join(", ")}) FROM STDIN`;

/** Formats plants for COPY, as text: https://www.postgresql.org/docs/current/sql-copy.html */
export function copyLines(plants: readonly NewPlant[]): string {
  const lineOf = (plant: NewPlant) =>
    FIELDS.map((field) => copyText(columnValue(plant, field))).join("\t");
  return plants.map((plant) => `${lineOf(plant)}\n`).join("");
}

function copyText(value: bigint | ColumnValue): string {
  if (value === null) return String.raw`\N`;
  return String(value).replace(/[\\\t\n\r]/g, (character) => ESCAPES[character] as string);
}

const ESCAPES: Readonly<Record<string, string>> = {
  "\\": String.raw`\\`,
  "\t": String.raw`\t`,
  "\n": String.raw`\n`,
  "\r": String.raw`\r`,
};

/** The column with the position of a plant in its batch, from 1. No field has this name. */
const PLACE = sql.identifier("#place");

/** The plants to compare, numbered in the order of the batch. */
const sent = sql`unnest(${list(ARRAYS)}) WITH ORDINALITY AS sent (${list(FIELDS.map((field) => sql.identifier(field)))}, ${PLACE})`;

/**
 * Compares plants with the rows that have their ids, byte by byte. The server compares them, because
 * a row's texts may be far longer than the texts that were sent.
 *
 * It also locks the rows. A row lock writes to the WAL, so the statement returns once the rows are on
 * the disk and on the synchronous standby. Otherwise a primary that restarts after a crash would show
 * committed rows that are not on any standby yet.
 *
 * `FOR KEY SHARE` does not conflict with an ordinary UPDATE. `SKIP LOCKED` leaves out rows that another
 * transaction is deleting, so the statement never waits for a row lock.
 */
const COMPARE = db
  .select({
    place: sql`sent.${PLACE}::int`.as("place"),
    isSame:
      sql`${row(FIELDS.map((field) => plants[field]))} = ${row(FIELDS.map((field) => sql`sent.${sql.identifier(field)}`))}`.as(
        "is_same",
      ),
  })
  .from(sent)
  .innerJoin(plants, eq(plants.id, sql`sent.id`))
  .for("key share", { of: plants, skipLocked: true })
  .toSQL().sql;

/** Casts a row to text, as a client reads it, whatever types the operator gave the columns. */
function row(columns: SQLChunk[]): SQL {
  return sql`ROW(${list(columns)})::text COLLATE "C"`;
}

function list(parts: SQLChunk[]): SQL {
  return sql.join(parts, sql`, `);
}

/** The statements that add a batch. */
export interface PlantStatements {
  /**
   * Inserts plants with distinct ids in one transaction, and skips those whose id is taken.
   *
   * @returns The inserted rows.
   */
  insert(connection: Connection, plants: readonly NewPlant[]): Promise<readonly PlantRow[]>;

  /** Takes the table lock of an INSERT for these plants, and inserts nothing. */
  lockTable(connection: Connection, plants: readonly NewPlant[]): Promise<unknown>;

  /**
   * Compares plants with the rows that have their ids, and returns once those rows are on the disk and
   * on the synchronous standby. Does not wait for row locks: it may leave out a locked row.
   *
   * @returns For each plant whose id has a row: its index, and whether the row is the same plant.
   */
  compare(
    connection: Connection,
    plants: readonly NewPlant[],
  ): Promise<readonly { readonly index: number; readonly isSame: boolean }[]>;
}

/** The statements for a server that stores all plants. */
const STATEMENTS: PlantStatements = {
  insert: (connection, plants) => connection.query<PlantRow>(INSERT, arraysOf(plants)),
  lockTable: (connection) => connection.query(INSERT, arraysOf([])),

  async compare(connection, plants) {
    const parameters = arraysOf(plants);
    const rows = await connection.query<{ place: number; is_same: boolean }>(COMPARE, parameters);
    return rows.map(({ place, is_same }) => ({ index: place - 1, isSame: is_same }));
  },
};

/**
 * Returns the function that adds the batches of one store.
 *
 * It adds a batch in one statement, which is its own transaction. A second statement compares the plants
 * whose ids were taken: only a later statement sees rows that another transaction has just committed.
 *
 * A plant whose id another transaction holds is `unavailable`. Its id is remembered, and kept out of
 * the next batches.
 */
export function batchAdder() {
  const held = new HeldIds();
  return (
    connection: Connection,
    batch: readonly NewPlant[],
    deadline: number,
    statements = STATEMENTS,
  ) => addBatch(batch, { connection, statements, held, deadline });
}

async function addBatch(
  batch: readonly NewPlant[],
  adding: Adding,
): Promise<readonly StoreOutcome[]> {
  const entries = batch.map((plant): Entry => ({
    ...plant,
    outcome: undefined,
    duplicateOf: undefined,
  }));
  // Batches that insert the same ids in different orders would deadlock.
  const sorted = entries.toSorted((one, other) =>
    one.id < other.id ? -1 : Number(one.id > other.id),
  );

  // Plants of the same id keep their order, so the first of them is the first of the batch.
  for (const [index, entry] of sorted.entries()) {
    const before = sorted[index - 1];
    if (before?.id === entry.id) entry.duplicateOf = before.duplicateOf ?? before;
  }

  const { held } = adding;
  const now = performance.now();
  const steps = Object.groupBy(sorted, ({ id }) => held.stepFor(id, now));
  await addAll(adding, steps.insert ?? []);
  await addBesideLocks(adding, steps.retry ?? [], MAX_RETRY_LOCKS);

  for (const { id, outcome } of entries) if (outcome !== undefined) held.released(id);
  return entries.map(outcomeOf);
}

/** How many locks the search in a batch may wait for: one second in all. */
const MAX_SEARCH_LOCKS = 200;
/** How many locks the retried plants may wait for: a quarter of a second in all. */
const MAX_RETRY_LOCKS = 50;

/** The context of adding a batch. */
interface Adding {
  readonly connection: Connection;
  readonly statements: PlantStatements;
  readonly held: HeldIds;
  /** When the caller gives up, by `performance.now()`. */
  readonly deadline: number;
}

/** Adds plants whose ids are not known to be locked. */
async function addAll(adding: Adding, entries: readonly Entry[]): Promise<void> {
  if (entries.length === 0) return;

  const isInserted = await insert(adding, toInsert(entries));
  await compare(adding, entries);

  const rest = toInsert(entries);
  if (isInserted || rest.length === 0) return;

  // If the table itself is locked, this times out, and the whole batch is repeated.
  await adding.statements.lockTable(adding.connection, rest);
  await addBesideLocks(adding, entries, MAX_SEARCH_LOCKS);
}

/** Adds plants of which some ids are locked, or were locked before. */
async function addBesideLocks(
  adding: Adding,
  entries: readonly Entry[],
  maxLocks: number,
): Promise<void> {
  if (entries.length === 0) return;

  await insertBesideLocks(toInsert(entries), {
    ...adding,
    insert: (part) => insert(adding, part),
    maxLocks,
  });
  await compare(adding, entries);
}

/** A plant of a batch. */
interface Entry extends NewPlant {
  /** `undefined` until it is known. */
  outcome: AddOutcome | undefined;
  /** The first plant of the batch with the same id, unless this is the first. Only that is inserted. */
  duplicateOf: Entry | undefined;
}

/** Returns the plants to insert: those without an outcome that are not duplicates. */
function toInsert(entries: readonly Entry[]): readonly Entry[] {
  return entries.filter(
    ({ outcome, duplicateOf }) => outcome === undefined && duplicateOf === undefined,
  );
}

/**
 * Returns the outcome of a plant: `unavailable` if it was neither inserted nor found. The duplicate of
 * an added plant has no outcome yet, so it is compared with that plant here.
 */
function outcomeOf(entry: Entry): StoreOutcome {
  const { outcome, duplicateOf } = entry;
  if (outcome !== undefined) return outcome;
  if (duplicateOf?.outcome !== "added") return "unavailable";
  return samePlant(duplicateOf, entry) ? "present" : "conflict";
}

/** Inserts plants. Returns false if waiting for a lock timed out, which rolls the insert back. */
async function insert(
  { connection, statements }: Adding,
  entries: readonly Entry[],
): Promise<boolean> {
  let rows: readonly PlantRow[];
  try {
    rows = await statements.insert(connection, entries);
  } catch (error) {
    // lock_not_available
    if (codeOf(error) === "55P03") return false;
    throw error;
  }

  const inserted = new Map(rows.map((row) => [String(row.id), row]));
  for (const entry of entries) {
    const row = inserted.get(String(entry.id));
    if (row === undefined) continue;

    // An operator's trigger or column type may have changed the plant. Then a different plant has the id.
    entry.outcome = samePlant(plantFrom(row), entry) ? "added" : "conflict";
  }

  return true;
}

/** Compares the plants whose outcome is unknown with the rows that have their ids. */
async function compare(
  { connection, statements }: Adding,
  entries: readonly Entry[],
): Promise<void> {
  const unknown = entries.filter((entry) => (entry.duplicateOf ?? entry).outcome === undefined);
  if (unknown.length === 0) return;

  for (const { index, isSame } of await statements.compare(connection, unknown))
    (unknown[index] as Entry).outcome = isSame ? "present" : "conflict";
}

/** Returns the parameters of {@linkcode INSERT} and {@linkcode COMPARE}: an array for each column. */
function arraysOf(plants: readonly NewPlant[]): string[] {
  return FIELDS.map((field) =>
    field === "id"
      ? bigintArray(plants.map(({ id }) => id))
      : COLUMN_KINDS[kindOf(field)].array(plants.map((plant) => plant[field])),
  );
}

/** A row as Bun's client returns it: a bigint is a string. */
export type PlantRow = { readonly id: string | null } & {
  readonly [Field in keyof Plant]-?: ColumnValue;
};

/** Converts a row to a plant. */
export function plantFrom(row: PlantRow): NewPlant {
  return plantOfRow(BigInt(row.id as string), row);
}

/**
 * Runs the statements of an empty batch, and commits a row to a separate table. So it needs the locks,
 * privileges and columns that a plant needs, but adds none. It is one statement because, on a slow
 * network, each round trip uses up the probe's time.
 */
const PROBE = `WITH added AS (${INSERT}), stored AS MATERIALIZED (${COMPARE})
  INSERT INTO probes (id, probed_at) SELECT $${FIELDS.length + 1}::int, now()
    WHERE NOT EXISTS (SELECT FROM added) AND NOT EXISTS (SELECT FROM stored)
    ON CONFLICT (id) DO UPDATE SET probed_at = excluded.probed_at
    RETURNING ${DURABILITY}, current_setting('synchronous_standby_names') AS standby_names`;

/** With this many rows, servers that probe at the same time seldom wait for each other's row lock. */
const PROBE_ROWS = 64;

/**
 * Verifies that plants can be stored now, and that the server's settings have not changed since the
 * connection was opened.
 *
 * @returns `synchronous_standby_names`; `undefined` if the server did not say.
 */
export async function probe(connection: Connection): Promise<string | undefined> {
  const [found] = await connection.query<Durability & { standby_names: string }>(PROBE, [
    ...arraysOf([]),
    String(Math.floor(Math.random() * PROBE_ROWS)),
  ]);
  if (found !== undefined) requireDurable(found);
  return found?.standby_names;
}
