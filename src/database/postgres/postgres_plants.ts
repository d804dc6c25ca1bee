import { eq, getTableColumns, gte, lt, type SQL, sql, type SQLChunk } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";

import { type NewPlant, PLANT_FIELDS, plantOf, samePlant } from "../../plant/plant.ts";
import { type AddOutcome, PAGE_PLANTS, PAGE_TEXT, type StoreOutcome } from "../database.ts";
import {
  type Connection,
  DURABILITY,
  type Durability,
  LOCK_TIMEOUT_MS,
  requireDurable,
} from "./connection.ts";
import { codeOf } from "./errors.ts";
import type { HeldIds } from "./held_ids.ts";
import type { Work } from "./pool.ts";
import { bigintArray, plants, textArray } from "./schema.ts";

const { placeholder } = sql;

/** Drizzle writes each statement once; a connection runs it. */
const db = drizzle.mock();

/** The fields, in the order of the statement that inserts rows. Each is sent as an array. */
const FIELDS = Object.keys(getTableColumns(plants)) as (keyof NewPlant)[];
const ARRAYS = FIELDS.map(
  (field) => sql`${placeholder(field)}::${sql.raw(plants[field].getSQLType())}[]`,
);
/** The columns, each under the name of its field. */
const ROW = Object.fromEntries(
  FIELDS.map((field) => [field, sql<string | null>`${plants[field]}`.as(field)]),
) as Record<keyof NewPlant, SQL.Aliased<string | null>>;

/** The arrays are read side by side. In FROM, each would first be copied into a temporary store. */
const INSERT = db
  .insert(plants)
  .select(sql`SELECT ${list(ARRAYS.map((array) => sql`unnest(${array})`))}`)
  // On the id only: a conflict in an operator's own unique index is an error, not a stored plant.
  .onConflictDoNothing({ target: plants.id })
  .returning(ROW)
  .toSQL().sql;

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
export async function addPlants(
  connection: Connection,
  batch: readonly NewPlant[],
  held: HeldIds,
  deadline: number,
  statements: PlantStatements = STATEMENTS,
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

  const now = performance.now();
  const steps = Object.groupBy(sorted, ({ id }) => held.stepFor(id, now));
  const adding: Adding = { connection, statements, held, deadline };
  await addAll(adding, steps.insert ?? []);
  await retry(adding, steps.retry ?? []);

  for (const { id, outcome } of entries) if (outcome !== undefined) held.released(id);
  return entries.map(outcomeOf);
}

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

  await insertBesideLocks(adding, rest, MAX_SEARCH_LOCKS);
  await compare(adding, entries);
}

/** Adds plants whose ids met a lock before. It may have ended. */
async function retry(adding: Adding, entries: readonly Entry[]): Promise<void> {
  if (entries.length === 0) return;

  await insertBesideLocks(adding, toInsert(entries), MAX_RETRY_LOCKS);
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
      : textArray(plants.map((plant) => plant[field])),
  );
}

/** A row as the client reads it: a bigint is text. */
export type PlantRow = Readonly<Record<keyof NewPlant, string | null>>;

/** The plant of a row. */
export function plantFrom(row: PlantRow): NewPlant {
  return plantOf(BigInt(row.id as string), (field) => row[field]);
}

/**
 * How long to wait for a lock while the locked plants of a batch are found, in milliseconds: the
 * others wait as long. The whole batch has waited before, so what still holds a lock seldom ends
 * soon.
 */
const PART_LOCK_TIMEOUT_MS = 5;
/** How many parts a batch is split into. */
const PARTS = 16;
/** How many locks a batch may meet the first time: a second of waiting. */
const MAX_SEARCH_LOCKS = 200;
/** How many locks the plants that are retried may meet: a quarter of a second of waiting. */
const MAX_RETRY_LOCKS = 50;
/**
 * How long before the deadline to stop, in milliseconds, to leave time for reporting the stored
 * plants.
 */
const DEADLINE_MARGIN_MS = 100;

/**
 * Inserts plants in one statement. If that meets a lock, it inserts them in parts, which are split
 * likewise, down to the locked plants. It remembers the ids of those. Each statement that a lock
 * stops is an error in PostgreSQL's log.
 */
async function insertBesideLocks(
  adding: Adding,
  entries: readonly Entry[],
  maxLocks: number,
): Promise<void> {
  const { connection, held, deadline } = adding;
  const parts = [entries];
  let locks = 0;

  await setLockTimeout(connection, PART_LOCK_TIMEOUT_MS);
  try {
    while (locks < maxLocks && performance.now() < deadline - DEADLINE_MARGIN_MS) {
      const part = parts.pop();
      if (part === undefined) break;
      if (await insert(adding, part)) continue;

      locks++;
      if (part.length > 1) {
        parts.push(...split(part));
        continue;
      }
      for (const { id } of part) held.met(id);
    }
  } finally {
    await setLockTimeout(connection, LOCK_TIMEOUT_MS);
  }
}

function split(entries: readonly Entry[]): readonly (readonly Entry[])[] {
  const partSize = Math.ceil(entries.length / PARTS);
  const count = Math.ceil(entries.length / partSize);
  return Array.from({ length: count }, (_, part) =>
    entries.slice(part * partSize, (part + 1) * partSize),
  );
}

/** For the session: a connection never changes its session. */
async function setLockTimeout(connection: Connection, timeoutMs: number): Promise<void> {
  await connection.query("SELECT set_config('lock_timeout', $1::text, false)", [String(timeoutMs)]);
}

/** How long the texts of a row are, in bytes. */
const textBytes = sql.join(
  PLANT_FIELDS.map((field) => sql`coalesce(octet_length(${plants[field]}), 0)`),
  sql` + `,
);

/** The next rows, each with how long the texts of those before it are. */
const page = db
  .select({
    ...ROW,
    before: sql<number>`sum(${textBytes}) OVER (ORDER BY ${plants.id}) - (${textBytes})`.as(
      "#before",
    ),
  })
  .from(plants)
  .where(gte(plants.id, placeholder("from")))
  .orderBy(plants.id)
  .limit(PAGE_PLANTS)
  .as("page");

/** A page ends after the plant that makes it long enough. */
const SELECT_PAGE = db
  .select()
  .from(page)
  .where(lt(page.before, PAGE_TEXT))
  .orderBy(page.id)
  .toSQL();

/**
 * Reads a page of plants, ordered by id, from this id on, and returns once the synchronous standby
 * has it: PostgreSQL shows rows that no standby has if a waiting commit was interrupted by a crash or
 * the end of its server process. Even an empty page waits: a server whose standby was promoted no
 * longer commits, and lacks what the new primary has.
 *
 * It is one piece of work on one connection. Read on one server and committed on another, a page
 * could have plants that a failover has taken back.
 *
 * @param table The table that has them, quoted. @default plants
 */
export function durablePage(from: bigint, table?: string): Work<readonly NewPlant[]> {
  // PostgreSQL plans the query as if it named the table.
  const statement =
    table === undefined
      ? SELECT_PAGE.sql
      : `WITH plants AS (SELECT * FROM ${table}) ${SELECT_PAGE.sql}`;

  // The limits of a page are numbers; the other parameter is the placeholder.
  const parameters = SELECT_PAGE.params.map((value) =>
    String(typeof value === "number" ? value : from),
  );

  return async ({ query }) => {
    const rows = await query<PlantRow>(statement, parameters);
    await query(COMMIT_NOTHING);
    return rows.map(plantFrom);
  };
}

/**
 * A commit that changes no row and needs no privilege. It waits for the synchronous standby, and
 * commits wait in the order of the WAL: so the standby also has what was read before.
 */
const COMMIT_NOTHING = "SELECT pg_logical_emit_message(true, 'plant-store', '')";

/**
 * Runs the statements of a batch without a plant, and commits a row to a separate table: with the
 * locks, privileges and columns that plants need, it adds no plant. It is one statement, because on
 * a slow network each round trip takes a share of the probe's time.
 */
const PROBE = `WITH added AS (${INSERT}), stored AS MATERIALIZED (${COMPARE})
  INSERT INTO probes (id, probed_at) SELECT $${FIELDS.length + 1}::int, now()
    WHERE NOT EXISTS (SELECT FROM added) AND NOT EXISTS (SELECT FROM stored)
    ON CONFLICT (id) DO UPDATE SET probed_at = excluded.probed_at RETURNING ${DURABILITY}`;

/** With this many rows, servers that probe at once seldom wait for each other's commit. */
const PROBE_ROWS = 64;

/**
 * Verifies that plants can be stored now, and that the server's settings have not changed since the
 * connection was opened.
 */
export async function probe(connection: Connection): Promise<void> {
  const [found] = await connection.query<Durability>(PROBE, [
    ...arraysOf([]),
    String(Math.floor(Math.random() * PROBE_ROWS)),
  ]);
  if (found !== undefined) requireDurable(found);
}
