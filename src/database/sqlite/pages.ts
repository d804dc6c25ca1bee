import { resolve } from "node:path";

import { eventLoopTurn } from "../../async/timers.ts";
import type { TokenRecord } from "../../auth/token_store.ts";
import { INT64_MAX, INT64_MIN, type NewPlant, plantOfRow, sizeOf } from "../../plant/plant.ts";
import type { OpenPlants, ReadOptions } from "../adapter.ts";
import { DatabaseError, keysetPages, PAGE_PLANTS, PAGE_TEXT } from "../database.ts";
import { type Client, connect } from "./bun_driver.ts";
import { CorruptError, corruptionIn, withFileError } from "./errors.ts";
import { corruptionMarker } from "./markers.ts";
import { databaseFile } from "./path.ts";
import type { plants } from "./schema.ts";
import { allTokens, tokenPages } from "./token_pages.ts";
import { requireOwnDirectory } from "./trust.ts";

/** The row of a plant. An absent field is `null`. */
type PlantRow = typeof plants.$inferSelect;

/**
 * Opens the plants of a database read-only, even while a server writes to it.
 *
 * @throws {DatabaseError} If the file does not exist or cannot be read.
 */
export function openPlants(path: string, options?: Pick<ReadOptions, "onWarning">): OpenPlants {
  const client = connect(path, { ...options, access: "read" });
  const marker = withFileError("open", path, () => corruptionMarker(path));

  function requireWhole(): void {
    const finding = marker.finding();
    if (finding !== undefined)
      throw new DatabaseError(
        `Database "${path}" is corrupt (${finding}): plants may be missing; export prints those that can be read`,
      );
  }

  return {
    async *pages() {
      let plants = 0;
      const gaps: Gap[] = [];

      for await (const page of keysetPages(skippingGaps(readPage(client), gaps))) {
        plants += page.length;
        yield page;
      }

      // Throw only after everything readable was read. Check the marker too: a server may have found
      // corruption meanwhile, and SQLite reports no error for a row that no page of the tree leads to.
      const finding = gaps[0]?.finding ?? marker.finding();
      if (finding === undefined) return;
      throw new DatabaseError(
        `Database "${path}" is corrupt (${finding}): read ${plants} plants; ${missingIn(gaps)}`,
      );
    },

    async tokens() {
      const reading = <Result>(call: () => Result) =>
        withFileError("read the tokens of", path, call);
      reading(() => {
        // Whoever can replace the file, or a link to it, decides which tokens a server accepts.
        for (const place of [databaseFile(path), resolve(path)]) requireOwnDirectory(place);
      });
      const pageAfter = reading(() => tokenPages(client));
      const tokens = await allTokens(async (row) => reading(() => pageAfter(row)));
      // SQLite reads a damaged row without an error, for example as NULL in every column.
      reading(() => {
        if (!tokens.every(isSound)) throw new CorruptError("tokens: a row is not a token");
      });
      return tokens;
    },

    find: async (ids) => {
      const found = findPlants(client, ids);
      if (found.length < ids.length) requireWhole();
      return found;
    },

    count: async () => {
      const count = await countPlants(client);
      requireWhole();
      return count;
    },

    [Symbol.asyncDispose]: async () => client.close(),
  };
}

/**
 * Reads the plants with these ids.
 *
 * @throws {DatabaseError} If the database cannot be read.
 */
export function findPlants(client: Client, ids: readonly bigint[]): NewPlant[] {
  return withFileError("read", client.filename, () => {
    const statement = client.query<PlantRow, [bigint]>(FIND);
    return ids.flatMap((id) => {
      const row = statement.get(id);
      return row === null ? [] : plantOfRow(row.id, row);
    });
  });
}

/** As {@linkcode PAGE}, for one plant. */
const FIND = "SELECT * FROM plants WHERE id = ?";

/**
 * Counts the plants in steps. Between two steps the process handles signals, and the WAL can restart.
 *
 * @throws {DatabaseError} If the database cannot be read.
 */
export async function countPlants(client: Client): Promise<number> {
  let count = 0;
  let from: bigint | undefined = INT64_MIN;

  while (from !== undefined) {
    const first: bigint = from;
    const part = withFileError("read", client.filename, () =>
      client.query<CountRow, [bigint]>(COUNT).get(first),
    );
    count += Number(part?.count);
    const last = part?.last ?? INT64_MAX;
    from = last === INT64_MAX ? undefined : last + 1n;
    await eventLoopTurn();
  }
  return count;
}

const COUNT = `SELECT count(*) AS count, max(id) AS last
  FROM (SELECT id FROM plants WHERE id >= ? ORDER BY id LIMIT 1000000)`;

interface CountRow {
  readonly count: bigint;
  /** `null` after the last plant. */
  readonly last: bigint | null;
}

/** A range of ids whose plants cannot be read. */
interface Gap {
  readonly finding: string;
  /** The first id of the gap. */
  readonly from: bigint;
  /** The id of the next plant; `undefined` if there is none. */
  readonly next: bigint | undefined;
}

/**
 * Skips pages that cannot be read, and adds each gap to `gaps`. SQLite searches by id from the root, so
 * it can still read the pages after a corrupt one.
 */
function skippingGaps(readFrom: PageReader, gaps: Gap[]): PageReader {
  return (from) => {
    try {
      return readFrom(from);
    } catch (error) {
      const finding = corruptionIn(error);
      if (finding === undefined) throw error;

      const page = pageBehind(readFrom, from);
      gaps.push({ finding, from, next: page[0]?.id });
      return page;
    }
  };
}

/** Returns the first readable page after a corrupt one; an empty page if there is none. */
function pageBehind(readFrom: PageReader, from: bigint): readonly NewPlant[] {
  /** The last page that was read. */
  let page: readonly NewPlant[] | undefined;
  const canRead = (id: bigint) => {
    try {
      page = readFrom(id);
      return true;
    } catch (error) {
      if (corruptionIn(error) === undefined) throw error;
      return false;
    }
  };

  const ids = idsBehind(from);
  const found = ids.findIndex(canRead);
  if (found === -1) return [];

  // Binary search for the first id from which a page can be read.
  let bad = ids[found - 1] ?? from;
  let next = ids[found] as bigint;

  while (next - bad > 1n) {
    const middle = bad + (next - bad) / 2n;
    if (canRead(middle)) next = middle;
    else bad = middle;
  }

  return page ?? [];
}

/**
 * Returns about 200 ids to try after one that cannot be read, in ascending order. They are dense near
 * that id and near zero, and exponentially sparser further away.
 */
function idsBehind(from: bigint): readonly bigint[] {
  const powers = Array.from({ length: 63 }, (_, exponent) => 1n << BigInt(exponent));
  const ids = [...powers.flatMap((power) => [from + power, power, -power]), INT64_MAX];
  return ids
    .filter((id) => id > from && id <= INT64_MAX)
    .toSorted((one, other) => (one < other ? -1 : 1));
}

/** How many gaps a message names. */
const NAMED_GAPS = 10;

/** Returns where plants may be missing, in words. */
function missingIn(gaps: readonly Gap[]): string {
  if (gaps.length === 0) return "some may be missing";

  const named = gaps.slice(0, NAMED_GAPS).map(({ from, next }) => {
    if (next === undefined) return from === INT64_MIN ? "everywhere" : `above id ${from - 1n}`;
    return from === INT64_MIN ? `below id ${next}` : `between ids ${from - 1n} and ${next}`;
  });
  const others = gaps.length > NAMED_GAPS ? `, and in ${gaps.length - NAMED_GAPS} more gaps` : "";
  return `some are missing ${named.join(", ")}${others}`;
}

function isSound({ name, digest, createdAt, expiresAt, revokedAt }: TokenRecord): boolean {
  const times = [createdAt, expiresAt, revokedAt].map(Number);
  return typeof name === "string" && digest.length === 32 && times.every(Number.isFinite);
}

/** Reads a page of plants from an id on, ordered by id. */
type PageReader = (from: bigint) => readonly NewPlant[];

/**
 * Prepares reading pages of plants, from an id on, ordered by id.
 *
 * @throws {DatabaseError} If the database cannot be read, now or by a later call.
 */
export function readPage(client: Client): PageReader {
  const reading = <Result>(call: () => Result) => withFileError("read", client.filename, call);
  const statement = reading(() => client.prepare<PlantRow, [bigint, number]>(PAGE));
  /** Why the last page ended early. Reading the next page throws it. */
  let failure: { readonly at: bigint; readonly error: unknown } | undefined;

  return (from) =>
    reading(() => {
      if (failure?.at === from) throw failure.error;
      return pageOf(statement.iterate(from, PAGE_PLANTS), from, (at, error) => {
        failure = { at, error };
      });
    });
}

/**
 * Selects `*`, because a file that is only read may lack a newer column. Drizzle would quote each column
 * name, and SQLite reads an unknown name in double quotes as a string literal.
 */
const PAGE = "SELECT * FROM plants WHERE id >= ? ORDER BY id LIMIT ?";

/**
 * Reads the rows of a page. The page also ends before a row that cannot be read or is out of order: the
 * next page begins there, and throws. Leaving the loop early resets the statement, which ends its read
 * transaction.
 */
function pageOf(
  rows: Iterable<PlantRow>,
  from: bigint,
  onFailure: (at: bigint, error: unknown) => void,
): NewPlant[] {
  const page: NewPlant[] = [];
  let least = from;
  let characters = 0;

  try {
    for (const row of rows) {
      const plant = plantOfRow(row.id, row);
      // A corrupt tree can contain a cycle, and the same plants would be read forever.
      if (plant.id < least) throw new CorruptError(`plants: id ${plant.id} is out of order`);
      least = plant.id + 1n;
      page.push(plant);
      characters += sizeOf(plant);
      if (characters >= PAGE_TEXT) break;
    }
  } catch (error) {
    if (page.length === 0) throw error;
    onFailure(least, error);
  }
  return page;
}
