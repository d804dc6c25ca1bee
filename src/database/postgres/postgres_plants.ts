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

// The statements of a batch, which the probe runs too, and the two steps that add one.

const { placeholder } = sql;

/** Drizzle writes each statement once; a connection runs it. */
const db = drizzle.mock();

/** The fields, in the order of the statement that inserts rows. Each is sent as an array. */
const FIELDS = Object.keys(getTableColumns(plants)) as (keyof NewPlant)[];
const ARRAYS = FIELDS.map(
  (field) => sql`${placeholder(field)}::${sql.raw(plants[field].getSQLType())}[]`,
);
/** The columns, each under the name of its field: what a statement returns of a row. */
export const ROW = Object.fromEntries(
  FIELDS.map((field) => [field, sql<string | null>`${plants[field]}`.as(field)]),
) as Record<keyof NewPlant, SQL.Aliased<string | null>>;

/** Every plant, ordered by id. */
export const SELECT_ALL = db.select(ROW).from(plants).orderBy(plants.id).toSQL().sql;

/** The arrays are read side by side. In FROM, each would first be copied into a temporary store. */
const INSERT = db
  .insert(plants)
  .select(sql`SELECT ${list(ARRAYS.map((array) => sql`unnest(${array})`))}`)
  // On the id only: a conflict in an operator's own unique index is an error, not a stored plant.
  .onConflictDoNothing({ target: plants.id })
  .returning(ROW)
  .toSQL().sql;

/** Takes the lines of {@linkcode copyLines}. */
export const COPY_PLANTS = `COPY plants (${FIELDS.map((field) => `"${plants[field].name}"`).join(", ")}) FROM STDIN`;

/** Plants in COPY's text format: https://www.postgresql.org/docs/current/sql-copy.html */
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

/** The place of a plant in its batch, from 1. No field has this name. */
const PLACE = sql.identifier("#place");

/** The plants to compare. Their order gives each its place. */
const sent = sql`unnest(${list(ARRAYS)}) WITH ORDINALITY AS sent (${list(FIELDS.map((field) => sql.identifier(field)))}, ${PLACE})`;

/**
 * Compares plants with the rows of their ids, byte by byte, on the server: the texts of a row may
 * be far longer than what was sent.
 *
 * It also locks the rows. A lock is a write, so the statement returns once the rows are on the disk
 * and on the synchronous standby. Without it, a restarted primary shows rows that it had committed
 * before its crash, and that are on no standby yet.
 *
 * `FOR KEY SHARE` conflicts with no ordinary UPDATE. `SKIP LOCKED` leaves out the rows that another
 * transaction is deleting, so the statement waits for no lock.
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

/** As text, a row is what a client reads of it, whatever types the columns have. */
function row(columns: SQLChunk[]): SQL {
  return sql`ROW(${list(columns)})::text COLLATE "C"`;
}

function list(parts: SQLChunk[]): SQL {
  return sql.join(parts, sql`, `);
}

/** The statements that add a batch. */
export interface PlantStatements {
  /**
   * Inserts plants of different ids in one transaction, and leaves out those whose id is taken.
   *
   * @returns The rows that it inserted.
   */
  insert(connection: Connection, plants: readonly NewPlant[]): Promise<readonly PlantRow[]>;

  /** Waits for a lock on the whole table, of which these plants are to be part. Changes nothing. */
  lockTable(connection: Connection, plants: readonly NewPlant[]): Promise<unknown>;

  /**
   * Compares plants with the rows of their ids, and returns once those rows are on the disk and on
   * the synchronous standby. Waits for no lock of a row: it may leave out a row that is locked.
   *
   * @returns The index of each plant that has a row, and whether the row is the same plant.
   */
  compare(
    connection: Connection,
    plants: readonly NewPlant[],
  ): Promise<readonly { readonly index: number; readonly isSame: boolean }[]>;
}

/** The statements for one server that has all plants. */
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
 * Adds a batch in one statement, which commits by itself. A second one compares the plants that
 * were stored before: only a later statement sees what a rival has committed meanwhile.
 *
 * Plants that another transaction locks are `unavailable`. Their ids are remembered, and kept out
 * of the next batches.
 *
 * @param deadline When the caller gives up, by `performance.now()`.
 */
type AddBatch = (
  connection: Connection,
  batch: readonly NewPlant[],
  deadline: number,
  statements?: PlantStatements,
) => Promise<readonly StoreOutcome[]>;

/** Makes what adds the batches of one store. */
export function batchAdder(): AddBatch {
  const held = new HeldIds();
  return (connection, batch, deadline, statements = STATEMENTS) =>
    addBatch(batch, { connection, statements, held, deadline });
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
  // Overlapping batches in different orders would deadlock.
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
  await retry(adding, steps.retry ?? []);

  for (const { id, outcome } of entries) if (outcome !== undefined) held.released(id);
  return entries.map(outcomeOf);
}

/** How many locks a batch may meet the first time: a second of waiting. */
const MAX_SEARCH_LOCKS = 200;
/** How many locks the plants that are retried may meet: a quarter of a second of waiting. */
const MAX_RETRY_LOCKS = 50;

/** How a batch is added. */
interface Adding {
  readonly connection: Connection;
  readonly statements: PlantStatements;
  readonly held: HeldIds;
  readonly deadline: number;
}

/** Adds plants whose ids met no lock before. */
async function addAll(adding: Adding, entries: readonly Entry[]): Promise<void> {
  if (entries.length === 0) return;

  const isInserted = await insert(adding, toInsert(entries));
  await compare(adding, entries);

  const rest = toInsert(entries);
  if (isInserted || rest.length === 0) return;

  // Waits for a lock on the whole table. If that times out, the batch is repeated: no id is at
  // fault.
  await adding.statements.lockTable(adding.connection, rest);

  await insertBesideLocks(rest, {
    ...adding,
    insert: (part) => insert(adding, part),
    maxLocks: MAX_SEARCH_LOCKS,
  });
  await compare(adding, entries);
}

/** Adds plants whose ids met a lock before. It may have ended. */
async function retry(adding: Adding, entries: readonly Entry[]): Promise<void> {
  if (entries.length === 0) return;

  await insertBesideLocks(toInsert(entries), {
    ...adding,
    insert: (part) => insert(adding, part),
    maxLocks: MAX_RETRY_LOCKS,
  });
  await compare(adding, entries);
}

/** A plant of a batch. */
interface Entry extends NewPlant {
  /** `undefined` as long as it is not known. */
  outcome: AddOutcome | undefined;
  /**
   * The first plant of the batch with the same id, if this is a later one. Only the first is
   * inserted.
   */
  duplicateOf: Entry | undefined;
}

/** Those to insert: no duplicates, and none whose outcome is known. */
function toInsert(entries: readonly Entry[]): readonly Entry[] {
  return entries.filter(
    ({ outcome, duplicateOf }) => outcome === undefined && duplicateOf === undefined,
  );
}

/**
 * `unavailable` if the plant was neither inserted nor found. A duplicate of one that was added has no
 * outcome of its own.
 */
function outcomeOf(entry: Entry): StoreOutcome {
  const { outcome, duplicateOf } = entry;
  if (outcome !== undefined) return outcome;
  if (duplicateOf?.outcome !== "added") return "unavailable";
  return samePlant(duplicateOf, entry) ? "present" : "conflict";
}

/** Inserts plants. Returns false if a lock timed out, which rolls the insert back. */
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

    // An operator's trigger or type may have changed the plant: then another one has the id.
    entry.outcome = samePlant(plantFrom(row), entry) ? "added" : "conflict";
  }

  return true;
}

/** Compares the plants whose outcome is unknown with the rows of their ids. */
async function compare(
  { connection, statements }: Adding,
  entries: readonly Entry[],
): Promise<void> {
  const unknown = entries.filter((entry) => (entry.duplicateOf ?? entry).outcome === undefined);
  if (unknown.length === 0) return;

  for (const { index, isSame } of await statements.compare(connection, unknown))
    (unknown[index] as Entry).outcome = isSame ? "present" : "conflict";
}

/** The parameters of {@linkcode INSERT} and {@linkcode COMPARE}: an array for each column. */
function arraysOf(plants: readonly NewPlant[]): string[] {
  return FIELDS.map((field) =>
    field === "id"
      ? bigintArray(plants.map(({ id }) => id))
      : COLUMN_KINDS[kindOf(field)].array(plants.map((plant) => plant[field])),
  );
}

/** A row as the client reads it: a bigint is text. */
export type PlantRow = { readonly id: string | null } & {
  readonly [Field in keyof Plant]-?: ColumnValue;
};

/** The plant of a row. */
export function plantFrom(row: PlantRow): NewPlant {
  return plantOfRow(BigInt(row.id as string), row);
}

/**
 * Runs the statements of a batch without a plant, and commits a row to a separate table: with the
 * locks, privileges and columns that plants need, it adds no plant. It is one statement, because on
 * a slow network each round trip takes a share of the probe's time.
 */
const PROBE = `WITH added AS (${INSERT}), stored AS MATERIALIZED (${COMPARE})
  INSERT INTO probes (id, probed_at) SELECT $${FIELDS.length + 1}::int, now()
    WHERE NOT EXISTS (SELECT FROM added) AND NOT EXISTS (SELECT FROM stored)
    ON CONFLICT (id) DO UPDATE SET probed_at = excluded.probed_at
    RETURNING ${DURABILITY}, current_setting('synchronous_standby_names') AS standby_names`;

/** With this many rows, servers that probe at once seldom wait for each other's commit. */
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
