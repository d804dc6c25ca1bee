import { gte, lt, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";
import type { AnyPgColumn } from "drizzle-orm/pg-core";
import { type NewPlant, samePlant } from "../../plant/plant.ts";
import type { StoreOutcome } from "../plant_store.ts";
import { bigintArray, textArray } from "./arrays.ts";
import type { Connection } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";
import type { Work } from "./lane.ts";
import { passLocks, type UnlockedRows } from "./locks.ts";
import { plants } from "./schema.ts";

const { placeholder } = sql;

/** Drizzle writes the statements, once; a connection runs them. */
const db = drizzle.mock();

/** The arrays are read side by side. In FROM each of them would be copied into a temporary store before it is read. */
const INSERT = db
  .insert(plants)
  .select(
    sql`SELECT unnest(${placeholder("ids")}::bigint[]), unnest(${placeholder("names")}::text[]), unnest(${placeholder("tags")}::text[])`,
  )
  // Of the id only: in another unique index, which somebody added, a conflict is an error and no plant that is stored.
  .onConflictDoNothing({ target: plants.id })
  .returning({ id: plants.id })
  .toSQL().sql;

/** A longer text comes back as its SHA-256: what is stored may be far more than what was sent. */
const LONGEST_READ_BYTES = sql.raw("256");

const short = (text: AnyPgColumn) => sql`CASE WHEN octet_length(${text}) <= ${LONGEST_READ_BYTES} THEN ${text} END`;
const digest = (text: AnyPgColumn) =>
  sql`CASE WHEN octet_length(${text}) > ${LONGEST_READ_BYTES} THEN encode(sha256(convert_to(${text}, 'UTF8')), 'hex') END`;

/**
 * Looks up rows and locks them, which writes: so this, too, is durable and on the synchronous standby when it returns.
 * A row may be visible and not yet there: after a crash of the primary that had committed it, and not replicated it.
 */
const SELECT_STORED = db
  .select({
    id: plants.id,
    name: short(plants.name).as("name"),
    tag: short(plants.tag).as("tag"),
    nameDigest: digest(plants.name).as("name_digest"),
    tagDigest: digest(plants.tag).as("tag_digest"),
  })
  .from(plants)
  .where(sql`${plants.id} = ANY(${placeholder("ids")}::bigint[])`)
  .for("key share")
  .toSQL().sql;

/** A row as Bun gives it: a bigint is text. */
interface PlantRow {
  readonly id: string;
  readonly name: string;
  readonly tag: string | null;
}

/**
 * Adds a batch in one statement that commits by itself, and looks up in a second one what was there before: only
 * a later statement sees what a rival committed in the meantime. Plants that other transactions hold are `locked`, and
 * keep the others waiting for a moment only.
 *
 * @param deadline When the caller gives up, as `performance.now()` has it.
 */
export async function addPlants(
  connection: Connection,
  batch: readonly NewPlant[],
  deadline: number,
): Promise<readonly StoreOutcome[]> {
  if (batch.length === 0) return [];
  const candidates = firstOfEach(batch);
  const inserted = await insertRows(connection, candidates, deadline);
  // Each had an id of its own, and none was there.
  if (inserted.rows.length === batch.length) return batch.map(() => "added");
  const added = new Set(inserted.rows.map(({ id }) => BigInt(id)));
  const locked = new Set(inserted.locked.map(({ id }) => id));
  const losers = candidates.filter(({ id }) => !added.has(id) && !locked.has(id));
  const found = await storedRows(connection, losers, deadline);
  for (const { id } of found.locked) locked.add(id);
  const stored = new Map(found.rows.map((row) => [BigInt(row.id), row]));
  const first = new Map(candidates.map((plant) => [plant.id, plant]));
  return batch.map((plant) => {
    // The first of an id was added, and those after it are compared with it.
    if (added.delete(plant.id)) return "added";
    if (locked.has(plant.id)) return "locked";
    const row = stored.get(plant.id);
    const isSame = row === undefined ? samePlant(first.get(plant.id) ?? plant, plant) : holds(row, plant);
    return isSame ? "present" : "conflict";
  });
}

/** One for each id, in the order of ids: two batches that overlap in another order would wait for each other. */
function firstOfEach(batch: readonly NewPlant[]): readonly NewPlant[] {
  const first = new Map<bigint, NewPlant>();
  for (const plant of batch) if (!first.has(plant.id)) first.set(plant.id, plant);
  return [...first.values()].toSorted((one, other) => (one.id < other.id ? -1 : 1));
}

function insertRows(
  connection: Connection,
  candidates: readonly NewPlant[],
  deadline: number,
): Promise<UnlockedRows<Pick<PlantRow, "id">>> {
  return passLocks(connection, candidates, (part) => connection.query(INSERT, columnsOf(part)), deadline);
}

function columnsOf(batch: readonly NewPlant[]): string[] {
  return [
    bigintArray(batch.map(({ id }) => id)),
    textArray(batch.map(({ name }) => name)),
    textArray(batch.map(({ tag }) => tag)),
  ];
}

/** A row to compare a plant with: of a long text it has the digest only. */
interface StoredRow extends Pick<PlantRow, "id" | "tag"> {
  readonly name: string | null;
  readonly name_digest: string | null;
  readonly tag_digest: string | null;
}

async function storedRows(
  connection: Connection,
  losers: readonly NewPlant[],
  deadline: number,
): Promise<UnlockedRows<StoredRow>> {
  if (losers.length === 0) return { rows: [], locked: [] };
  const statement = (part: readonly NewPlant[]) =>
    connection.query<StoredRow>(SELECT_STORED, [bigintArray(part.map(({ id }) => id))]);
  const found = await passLocks(connection, losers, statement, deadline);
  // The row conflicted with the insert and was deleted since.
  if (found.rows.length + found.locked.length < losers.length) throw new PostgresFailure("ROW_GONE");
  return found;
}

function holds(row: StoredRow, { name, tag }: NewPlant): boolean {
  return isText(name, row.name, row.name_digest) && isText(tag ?? null, row.tag, row.tag_digest);
}

function isText(sent: string | null, stored: string | null, storedDigest: string | null): boolean {
  if (storedDigest === null) return sent === stored;
  return sent !== null && new Bun.CryptoHasher("sha256").update(sent).digest("hex") === storedDigest;
}

function toPlant({ id, name, tag }: PlantRow): NewPlant {
  return tag === null ? { id: BigInt(id), name } : { id: BigInt(id), name, tag };
}

/** A page ends at this many plants, or at {@linkcode PAGE_BYTES}. */
const PAGE_PLANTS = 4_000;
/** A page ends where the plants before have this many bytes, because a name may be long. */
const PAGE_BYTES = 2 ** 20;

const size = sql`octet_length(${plants.name}) + coalesce(octet_length(${plants.tag}), 0)`;
const page = db
  .select({
    id: plants.id,
    name: plants.name,
    tag: plants.tag,
    before: sql<number>`sum(${size}) OVER (ORDER BY ${plants.id}) - (${size})`.as("before"),
  })
  .from(plants)
  .where(gte(plants.id, placeholder("from")))
  .orderBy(plants.id)
  .limit(PAGE_PLANTS)
  .as("page");
const SELECT_PAGE = db
  .select({ id: page.id, name: page.name, tag: page.tag })
  .from(page)
  .where(lt(page.before, PAGE_BYTES))
  .orderBy(page.id)
  .toSQL();

/** Reads a page of plants, ordered by id, from this id on. */
export function readPage(from: bigint): Work<readonly NewPlant[]> {
  const parameters = SELECT_PAGE.params.map((value) => String(typeof value === "number" ? value : from));
  return async (connection) => (await connection.query<PlantRow>(SELECT_PAGE.sql, parameters)).map(toPlant);
}
