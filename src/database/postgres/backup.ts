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

/** The number of rows in a page of a snapshot: at most 64 MB. Two pages are in memory. */
const PAGE_ROWS = 1_000;

/**
 * Opens a snapshot of the plants and tokens, even on a standby or while servers run. It is one transaction, so a
 * migration waits until it is closed.
 *
 * @param options `onWarning` is called if a newer version has added columns, which are not read.
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
      // Fetch the next page while the caller stores this one.
      fetching = fetch();
      // The next round awaits it. If the caller fails to store this page, nothing does.
      fetching.catch(() => {});
      // Let the request leave now: storing a page blocks the thread.
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

/** Connects to a primary, or else to a standby, which may lag. */
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
 * Disables index scans, so that PostgreSQL reads the table sequentially and sorts it. An index scan of a large table
 * would seek for each row.
 */
const BEGIN = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
  SET LOCAL idle_in_transaction_session_timeout = 0;
  SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL cursor_tuple_fraction = 1`;

/**
 * Creates missing tables, and requires that they have no plants or tokens. Called before the check of the backup,
 * which may take minutes.
 *
 * @throws {DatabaseError} If there are plants or tokens, or the role may not create tables.
 */
export async function prepareRestore({ connection, url }: Reached): Promise<void> {
  await withDatabaseError("restore into", url.database, async () => {
    await refuseDistributed(connection);
    await migrateSchema(connection);
    await requireEmpty(connection);
  });
}

/**
 * Fills an empty database with the plants and tokens of a snapshot, in one transaction.
 *
 * @returns The number of plants and the state of the tokens; `undefined` if stopped, with nothing stored.
 * @throws {DatabaseError} If the database is not empty, or cannot be written. Nothing is stored. The message says
 *   why, in one line.
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
    // An operator's trigger may have skipped some.
    if (stored !== plants)
      throw new DatabaseError(
        `it stored ${stored} of ${plants} plants: drop the trigger that discards rows`,
      );
    await insertTokens(connection, snapshot);

    await connection.script("COMMIT");
    return { plants, tokens: { ended: 0, unconfirmed: activeIn(snapshot) } };
  });
}

/** Locks the tables: servers can read them, but store nothing. */
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

/** Inserts the tokens and changes the revision, so that running servers reload them. */
const INSERT_TOKENS = `WITH inserted AS (
    INSERT INTO tokens (name, digest, scopes, created_at, expires_at, revoked_at, last_used_at)
    SELECT unnest($1::text[]), unnest($2::bytea[]), unnest($3::text[]), unnest($4::timestamptz[]),
      unnest($5::timestamptz[]), unnest($6::timestamptz[]), unnest($7::timestamptz[]))
  INSERT INTO token_revision (id, revision) VALUES (1, (random() * 9007199254740991)::bigint)
    ON CONFLICT (id) DO UPDATE SET revision = excluded.revision`;

/** Returns the names of the accepted tokens. */
function activeIn({ tokens }: Snapshot): readonly string[] {
  return tokens.filter((token) => tokenStatus(token) === "active").map(({ name }) => name);
}
