import { gte, lt, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";
import type { AnyPgColumn } from "drizzle-orm/pg-core";
import { type NewPlant, samePlant } from "../../plant/plant.ts";
import { PAGE_PLANTS, PAGE_TEXT, type StoreOutcome } from "../database.ts";
import { pause } from "../../async/timers.ts";
import { type Connection, DURABILITY, type Durability, LOCK_TIMEOUT_MS, requireDurable } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";
import type { Work } from "./pool.ts";
import { bigintArray, plants, textArray } from "./schema.ts";

const { placeholder } = sql;

/** Drizzle writes each statement once; a connection runs it. */
const db = drizzle.mock();

/** The arrays are read side by side. In FROM, each would first be copied into a temporary store. */
const INSERT = db
  .insert(plants)
  .select(
    sql`SELECT unnest(${placeholder("ids")}::bigint[]), unnest(${placeholder("names")}::text[]), unnest(${placeholder("tags")}::text[])`,
  )
  // On the id only: a conflict in an operator's own unique index is an error, not a stored plant.
  .onConflictDoNothing({ target: plants.id })
  .returning({ id: plants.id })
  .toSQL().sql;

/** A longer text is read as its SHA-256: the stored plant may be far longer than the one that was sent. */
const LONGEST_READ_BYTES = sql.raw("256");

const short = (text: AnyPgColumn) => sql`CASE WHEN octet_length(${text}) <= ${LONGEST_READ_BYTES} THEN ${text} END`;
const digest = (text: AnyPgColumn) =>
  sql`CASE WHEN octet_length(${text}) > ${LONGEST_READ_BYTES} THEN encode(sha256(convert_to(${text}, 'UTF8')), 'hex') END`;

/**
 * Looks up rows and locks them. Locking writes, so the rows are durable and on the synchronous standby when it returns.
 * Otherwise a row may be visible before it is replicated: after a crash of the primary that had committed it.
 * It waits for no lock, and an ordinary UPDATE of a row does not conflict. Rows that another transaction deletes are skipped.
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
  .for("key share", { skipLocked: true })
  .toSQL().sql;

/** A row as Bun returns it: a bigint is text. */
interface PlantRow {
  readonly id: string;
  readonly name: string;
  readonly tag: string | null;
}

/**
 * Adds a batch in one statement, which commits by itself. A second one looks up the plants that were stored before: only a
 * later statement sees what a rival has committed meanwhile. Plants that another transaction locks for about a second
 * are `unavailable`.
 *
 * @param deadline When the caller gives up, by `performance.now()`.
 */
export async function addPlants(
  connection: Connection,
  batch: readonly NewPlant[],
  deadline: number,
): Promise<readonly StoreOutcome[]> {
  if (batch.length === 0) return [];
  const candidates = firstOfEach(batch);
  const inserted = await insert(connection, candidates);
  // Every id is unique and new.
  if (inserted?.length === batch.length) return batch.map(() => "added");
  const adding: Adding = { connection, added: new Set(inserted?.map(idOf) ?? []), stored: new Map() };
  await look(adding, candidates);
  await addBesideLocks(adding, candidates, deadline);
  const { added, stored } = adding;
  const told = new Set<bigint>();
  const first = new Map(candidates.map((plant) => [plant.id, plant]));
  return batch.map((plant) => {
    const { id } = plant;
    const row = stored.get(id);
    if (row !== undefined) return holds(row, plant) ? "present" : "conflict";
    // The first plant with an id was added. Later ones in the batch are compared with it.
    if (!added.has(id)) return "unavailable";
    if (!told.has(id)) return told.add(id) && "added";
    return samePlant(first.get(id) ?? plant, plant) ? "present" : "conflict";
  });
}

/** One plant for each id, sorted by id: overlapping batches in different orders would deadlock. */
function firstOfEach(batch: readonly NewPlant[]): readonly NewPlant[] {
  const first = new Map<bigint, NewPlant>();
  for (const plant of batch) if (!first.has(plant.id)) first.set(plant.id, plant);
  return [...first.values()].toSorted((one, other) => (one.id < other.id ? -1 : 1));
}

function columnsOf(batch: readonly NewPlant[]): string[] {
  return [
    bigintArray(batch.map(({ id }) => id)),
    textArray(batch.map(({ name }) => name)),
    textArray(batch.map(({ tag }) => tag)),
  ];
}

/** A row to compare a plant with. A long text is replaced by its digest. */
interface StoredRow extends Pick<PlantRow, "id" | "tag"> {
  readonly name: string | null;
  readonly name_digest: string | null;
  readonly tag_digest: string | null;
}

/** A batch in flight: the ids that were added, and the rows that were found. */
interface Adding {
  readonly connection: Connection;
  readonly added: Set<bigint>;
  readonly stored: Map<bigint, StoredRow>;
}

/** The plants that are neither added nor found. */
function openOf({ added, stored }: Adding, plants: readonly NewPlant[]): readonly NewPlant[] {
  return plants.filter(({ id }) => !added.has(id) && !stored.has(id));
}

function idOf({ id }: Pick<PlantRow, "id">): bigint {
  return BigInt(id);
}

/** Inserts plants. Returns the rows of the new ones, or `undefined` if a lock timed out, which rolls the insert back. */
async function insert(
  connection: Connection,
  plants: readonly NewPlant[],
): Promise<readonly Pick<PlantRow, "id">[] | undefined> {
  try {
    return await connection.query<Pick<PlantRow, "id">>(INSERT, columnsOf(plants));
  } catch (error) {
    if (error instanceof PostgresFailure && error.code === LOCK_NOT_AVAILABLE) return undefined;
    throw error;
  }
}

/** The SQLSTATE of a statement that waited for a lock longer than `lock_timeout`. */
const LOCK_NOT_AVAILABLE = "55P03";

/** Looks up the rows of the open plants. */
async function look(adding: Adding, plants: readonly NewPlant[]): Promise<void> {
  const open = openOf(adding, plants);
  if (open.length === 0) return;
  const rows = await adding.connection.query<StoredRow>(SELECT_STORED, [bigintArray(open.map(({ id }) => id))]);
  for (const row of rows) adding.stored.set(BigInt(row.id), row);
}

/** How long to retry locked plants, in milliseconds. */
const LOCKED_TIMEOUT_MS = 1_000;
/** How long a statement with several plants waits for a lock, in milliseconds: no plant should wait for its neighbour's. */
const PART_LOCK_TIMEOUT_MS = 20;
/** The pause between two lookups of a locked row, in milliseconds. */
const LOOK_PAUSE_MS = 50;
/** How long before the deadline to stop, in milliseconds, to leave time for reporting the stored plants. */
const DEADLINE_MARGIN_MS = 100;

/**
 * Adds the open plants of a batch that met a lock. All at once first, because the lock may have been on a stored row; then
 * in parts; then each plant of a part that met a lock. Then it waits for the rest together. Each statement that a lock
 * stops is an error in PostgreSQL's log, so there should be few.
 */
async function addBesideLocks(adding: Adding, plants: readonly NewPlant[], deadline: number): Promise<void> {
  const { connection, added } = adding;
  let open = openOf(adding, plants);
  if (open.length === 0) return;
  const end = Math.min(performance.now() + LOCKED_TIMEOUT_MS, deadline - DEADLINE_MARGIN_MS);
  const leftMs = () => Math.ceil(end - performance.now());

  /** Adds the open plants, `size` in a statement. Plants whose statement met a lock stay open. */
  async function addParts(size: number): Promise<void> {
    const blocked: NewPlant[] = [];
    for (const part of chunksOf(open, size)) {
      const inserted = leftMs() > 0 ? await insert(connection, part) : undefined;
      if (inserted === undefined) blocked.push(...part);
      else for (const row of inserted) added.add(idOf(row));
    }
    open = blocked;
  }

  if (leftMs() > 0) {
    await setLockTimeout(connection, PART_LOCK_TIMEOUT_MS);
    try {
      if (open.length > 1) await addParts(open.length);
      if (open.length > 3) await addParts(Math.ceil(Math.sqrt(open.length)));
      if (open.length > 1) await addParts(1);
      if (open.length > 0 && leftMs() > 0) {
        await setLockTimeout(connection, leftMs());
        await addParts(open.length);
      }
    } finally {
      await setLockTimeout(connection, LOCK_TIMEOUT_MS);
    }
  }
  await look(adding, plants);
  while (openOf(adding, plants).length > 0 && leftMs() > 0) {
    await pause(LOOK_PAUSE_MS);
    await look(adding, plants);
  }
}

/** Chunks, beginning with a random one: if the time runs out, the next call begins elsewhere. */
function chunksOf(plants: readonly NewPlant[], size: number): readonly (readonly NewPlant[])[] {
  const chunks = Array.from({ length: Math.ceil(plants.length / size) }, (_, index) =>
    plants.slice(index * size, (index + 1) * size),
  );
  const first = Math.floor(Math.random() * chunks.length);
  return [...chunks.slice(first), ...chunks.slice(0, first)];
}

/** For the session: a connection never changes its session. */
async function setLockTimeout(connection: Connection, timeoutMs: number): Promise<void> {
  await connection.query("SELECT set_config('lock_timeout', $1::text, false)", [String(timeoutMs)]);
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
  .where(lt(page.before, PAGE_TEXT))
  .orderBy(page.id)
  .toSQL();

/** Reads a page of plants, ordered by id, from this id on. */
export function readPage(from: bigint): Work<readonly NewPlant[]> {
  const parameters = SELECT_PAGE.params.map((value) => String(typeof value === "number" ? value : from));
  return async (connection) => (await connection.query<PlantRow>(SELECT_PAGE.sql, parameters)).map(toPlant);
}

/**
 * Commits a row to a separate table, with the locks and privileges that plants need, and adds no plant. It is one statement,
 * because on a slow network each round trip takes a share of the probe's time.
 */
const PROBE = `WITH added AS (
    INSERT INTO plants (id, name) SELECT 0, '' WHERE false ON CONFLICT (id) DO NOTHING RETURNING id),
  stored AS MATERIALIZED (SELECT id FROM plants WHERE false FOR KEY SHARE)
  INSERT INTO probes (id, probed_at) SELECT $1::int, now()
    WHERE NOT EXISTS (SELECT FROM added) AND NOT EXISTS (SELECT FROM stored)
    ON CONFLICT (id) DO UPDATE SET probed_at = excluded.probed_at RETURNING ${DURABILITY}`;

/** With this many rows, servers that probe at once seldom wait for each other's commit. */
const PROBE_ROWS = 64;

/** Verifies that plants can be stored now, and that the server's settings have not changed since the connection was opened. */
export async function probe(connection: Connection): Promise<void> {
  const [found] = await connection.query<Durability>(PROBE, [String(Math.floor(Math.random() * PROBE_ROWS))]);
  if (found !== undefined) requireDurable(found);
}
