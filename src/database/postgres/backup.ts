import { eventLoopTurn } from "../../async/timers.ts";
import { formatScopes, tokenStatus } from "../../auth/token_store.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { OnWarning, ReadOptions, RestoredTokens, Snapshot } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import type { Connection } from "./connection.ts";
import { withDatabaseError } from "./errors.ts";
import { failover } from "./failover.ts";
import { migrateSchema, pendingMigrations } from "./migrations.ts";
import { type Reached, refuseDistributed } from "./postgres_database.ts";
import { COPY_PLANTS, copyLines, plantFrom, type PlantRow, SELECT_ALL } from "./postgres_plants.ts";
import { textArray } from "./schema.ts";
import { readTokens } from "./tokens.ts";
import { howToRun, type PostgresUrl } from "./url.ts";

/** How many rows a page of a snapshot has: 64 MB, if each has the longest name of a body. Two are in memory. */
const PAGE_ROWS = 1_000;

/**
 * Opens a snapshot of the plants and tokens, even on a standby, and while servers run. It lasts as long as one
 * transaction: a migration waits for it.
 *
 * @param options `onWarning` is called with what a newer version has added, which is left out.
 * @throws {DatabaseError} If the database cannot be read. The message says why, in one line.
 */
export async function openSnapshot(
  url: PostgresUrl,
  { onWarning }: Pick<ReadOptions, "onWarning"> = {},
): Promise<Snapshot> {
  const reading = <Result>(read: () => Promise<Result>) =>
    withDatabaseError("back up", url.database, read);
  const connection = await reading(() => connect(url));

  async function* pages(): AsyncGenerator<readonly NewPlant[]> {
    await reading(() => connection.script(`DECLARE pages NO SCROLL CURSOR FOR ${SELECT_ALL}`));
    const fetch = () => reading(() => connection.query<PlantRow>(`FETCH ${PAGE_ROWS} FROM pages`));
    let fetching = fetch();
    for (;;) {
      const rows = await fetching;
      if (rows.length === 0) return;
      // The server reads the next page while this one is stored.
      fetching = fetch();
      // Awaited with the next page, or never if this one cannot be stored.
      fetching.catch(() => {});
      // Only then is it sent: storing a page leaves the thread for nothing.
      await eventLoopTurn();
      yield rows.map(plantFrom);
    }
  }

  try {
    return await reading(async () => {
      await requireTables(connection, onWarning);
      await connection.script(BEGIN);
      const tokens = await readTokens(connection);
      return {
        pages,
        tokens,
        [Symbol.asyncDispose]: async () => connection.close(),
      };
    });
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** Prefers a primary: a standby may lag. */
async function connect(url: PostgresUrl): Promise<Connection> {
  const servers = failover(url);
  const options = { statementTimeoutMs: 0 };
  try {
    return await servers.connect(options);
  } catch {
    return await servers.connect({ ...options, acceptsStandby: true });
  }
}

async function requireTables(connection: Connection, onWarning?: OnWarning): Promise<void> {
  await refuseDistributed(connection);
  if ((await pendingMigrations(connection, onWarning)).length > 0)
    throw new DatabaseError(
      `it has no plant-store tables, or those of an older version: ${howToRun("migrate")}`,
    );
}

/**
 * Reads the table from its beginning to its end and sorts it. By the index, each row of a large table would be read
 * from another place of the disk.
 */
const BEGIN = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
  SET LOCAL idle_in_transaction_session_timeout = 0;
  SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL cursor_tuple_fraction = 1`;

/**
 * Creates the tables if there are none, and requires that they have no plants and tokens: before a backup is checked,
 * which may take minutes.
 *
 * @throws {DatabaseError} If they have any, or the role may not create tables.
 */
export async function prepareRestore({ connection, url }: Reached): Promise<void> {
  await withDatabaseError("restore into", url.database, async () => {
    await refuseDistributed(connection);
    await migrateSchema(connection, LOCK_PATIENCE_MS);
    await requireEmpty(connection);
  });
}

/** How long to try to get the locks of a migration, in milliseconds. */
const LOCK_PATIENCE_MS = 5_000;

/**
 * Fills a database with the plants and tokens of a snapshot, in one transaction. Creates the tables if there are none.
 *
 * @returns The number of plants, and what became of the tokens; `undefined` if stopped: then nothing was stored.
 * @throws {DatabaseError} If there are plants or tokens already, or it cannot be written. Then nothing
 *   was stored. The message says why, in one line.
 */
export async function restoreSnapshot(
  { connection, url }: Reached,
  snapshot: Snapshot,
  options: ReadOptions,
): Promise<{ readonly plants: number; readonly tokens: RestoredTokens } | undefined> {
  return await withDatabaseError("restore into", url.database, async () => {
    await connection.script(LOCK);
    await requireEmpty(connection);

    let plants = 0;
    const copy = connection.copyFrom(COPY_PLANTS);
    for await (const page of snapshot.pages()) {
      if (options.stop.aborted) return undefined;
      await copy.write(copyLines(page));
      plants += page.length;
    }
    const stored = await copy.end();
    // An operator's trigger may leave some out.
    if (stored !== plants)
      throw new DatabaseError(
        `it stored ${stored} of ${plants} plants: drop the trigger that discards rows`,
      );
    await insertTokens(connection, snapshot);

    await connection.script("COMMIT");
    return { plants, tokens: { ended: 0, unconfirmed: activeIn(snapshot) } };
  });
}

/** Servers can read meanwhile, and store nothing. */
const LOCK = `BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = 0;
  LOCK TABLE plants, tokens IN EXCLUSIVE MODE`;

async function requireEmpty({ query }: Connection): Promise<void> {
  const [found] = await query<{ plants: boolean; tokens: boolean }>(
    "SELECT EXISTS (SELECT FROM plants) AS plants, EXISTS (SELECT FROM tokens) AS tokens",
  );
  const what = found?.plants ? "plants" : "tokens";
  if (found?.plants || found?.tokens)
    throw new DatabaseError(`it has ${what} already: create a new database, and restore into that`);
}

async function insertTokens({ query }: Connection, { tokens }: Snapshot): Promise<void> {
  const times = (of: (token: (typeof tokens)[number]) => Date | null) =>
    textArray(tokens.map((token) => of(token)?.toISOString()));
  await query(INSERT_TOKENS, [
    textArray(tokens.map(({ name }) => name)),
    textArray(tokens.map(({ digest }) => `\\x${digest.toHex()}`)),
    textArray(tokens.map(({ scopes }) => formatScopes(scopes))),
    times(({ createdAt }) => createdAt),
    times(({ expiresAt }) => expiresAt),
    times(({ revokedAt }) => revokedAt),
    times(({ lastUsedAt }) => lastUsedAt),
  ]);
}

/** With a new revision, running servers read them. */
const INSERT_TOKENS = `WITH inserted AS (
    INSERT INTO tokens (name, digest, scopes, created_at, expires_at, revoked_at, last_used_at)
    SELECT unnest($1::text[]), unnest($2::bytea[]), unnest($3::text[]), unnest($4::timestamptz[]),
      unnest($5::timestamptz[]), unnest($6::timestamptz[]), unnest($7::timestamptz[]))
  INSERT INTO token_revision (id, revision) VALUES (1, (random() * 9007199254740991)::bigint)
    ON CONFLICT (id) DO UPDATE SET revision = excluded.revision`;

/** The names of the tokens that are accepted. */
function activeIn({ tokens }: Snapshot): readonly string[] {
  return tokens.filter((token) => tokenStatus(token) === "active").map(({ name }) => name);
}
