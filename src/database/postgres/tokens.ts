import {
  and,
  asc,
  eq,
  getTableColumns,
  isNotNull,
  isNull,
  lte,
  or,
  type SQL,
  sql,
  type SQLWrapper,
} from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";
import { PgDialect } from "drizzle-orm/pg-core";

import {
  formatScopes,
  MAX_AHEAD_MS,
  parseScopes,
  type TokenRecord,
  type TokenStore,
} from "../../auth/token_store.ts";
import type { Connection } from "./connection.ts";
import { COMMIT_NOTHING } from "./pages.ts";
import type { Pool, Work } from "./pool.ts";
import { textArray, tokenRevision, tokens } from "./schema.ts";

const { placeholder } = sql;
const db = drizzle.mock();

/** The columns, each aliased to its name in the schema. */
const COLUMNS = Object.entries(getTableColumns(tokens)).map(([name, column]) => [
  name,
  sql`${column}`.as(name),
]);

/** Sorts names by bytes, as SQLite does. The database's own collation may differ. */
const LIST = db
  .select(Object.fromEntries(COLUMNS))
  .from(tokens)
  .orderBy(asc(tokens.createdAt), sql`${tokens.name} COLLATE "C"`)
  .toSQL().sql;

type TokenRow = typeof tokens.$inferSelect;

const REVISION = db.select({ revision: tokenRevision.revision }).from(tokenRevision).toSQL().sql;

/**
 * Extends a statement that changes tokens and returns their names: if it changes any, it also changes the
 * revision, which tells every server to reload. The revision is random, because a failover may lose the last
 * change. A counter would then repeat its number, and a server would miss the next change.
 */
function changing(statement: SQLWrapper): string {
  const revised = sql`INSERT INTO ${tokenRevision} (id, revision)
    SELECT 1, (random() * 9007199254740991)::bigint WHERE EXISTS (SELECT FROM changed)
    ON CONFLICT (id) DO UPDATE SET revision = excluded.revision`;
  // Drizzle adds the parentheses.
  const all = sql`WITH changed AS ${statement}, revised AS (${revised}) SELECT name FROM changed`;
  return new PgDialect().sqlToQuery(all).sql;
}

const ADD = changing(
  db
    .insert(tokens)
    .select(
      sql`SELECT ${placeholder("name")}::text, ${placeholder("digest")}::bytea, ${placeholder("createdAt")}::timestamptz, ${placeholder("expiresAt")}::timestamptz, ${placeholder("revokedAt")}::timestamptz, NULL::timestamptz, ${placeholder("scopes")}::text`,
    )
    .onConflictDoNothing()
    .returning({ name: tokens.name }),
);
const SAME = db
  .select({ name: tokens.name })
  .from(tokens)
  .where(and(eq(tokens.name, placeholder("name")), eq(tokens.digest, placeholder("digest"))))
  .toSQL().sql;

const at = sql`${placeholder("at")}::timestamptz`;
/** Repeats its own revocation, because the reply to an earlier attempt may have been lost. */
const REVOKE = changing(
  db
    .update(tokens)
    .set({ revokedAt: at })
    .where(
      and(
        or(isNull(tokens.revokedAt), eq(tokens.revokedAt, at)),
        eq(tokens.name, placeholder("name")),
      ),
    )
    .returning({ name: tokens.name }),
);

const DELETE = deletionOf(eq(tokens.name, placeholder("name")));
const PRUNE = deletionOf(or(isNotNull(tokens.revokedAt), lte(tokens.expiresAt, at)));

/** Returns the statements that find and delete tokens. */
function deletionOf(condition: SQL | undefined) {
  const { name } = tokens;
  const find = db.select({ name }).from(tokens).where(condition).toSQL().sql;
  return [find, changing(db.delete(tokens).where(condition).returning({ name }))];
}

/**
 * Finds tokens, deletes them, and counts the names of both statements over all attempts: the reply to an
 * attempt that deleted tokens may have been lost.
 */
function deleting(deletion: readonly string[], parameter: string): Work<number> {
  const names = new Set<string>();
  return async ({ query }) => {
    for (const statement of deletion) {
      for (const { name } of await query<TokenRow>(statement, [parameter])) names.add(name);
    }
    return names.size;
  };
}

const RECORD_USES = `UPDATE tokens SET last_used_at = uses.at
  FROM (SELECT name, max(at) AS at FROM unnest($1::text[], $2::timestamptz[]) AS use (name, at) GROUP BY name) AS uses
  WHERE tokens.name = uses.name AND (last_used_at IS NULL OR last_used_at < uses.at
    OR last_used_at > uses.at + interval '${MAX_AHEAD_MS} milliseconds')`;

/** Reads every token. */
export async function readTokens({ query }: Connection): Promise<readonly TokenRecord[]> {
  return (await query<TokenRow>(LIST)).map(recordOf);
}

function recordOf(row: TokenRow): TokenRecord {
  // Bun's client returns the number Infinity for the timestamp `infinity`, which means never.
  const expiresAt = Number(row.expiresAt) === Infinity ? null : row.expiresAt;
  return { ...row, digest: new Uint8Array(row.digest), scopes: parseScopes(row.scopes), expiresAt };
}

/** The time limit for tokens, in milliseconds. */
const TIMEOUT_MS = 10_000;
/**
 * The time limit for reading the revision of the tokens, in milliseconds: a revocation must take
 * effect soon.
 */
const REVISION_TIMEOUT_MS = 2_000;

/** Returns the store of tokens. Reads have their own pool, so they never wait for writes or a standby. */
export function postgresTokens(reading: Pool, writing: Pool): TokenStore {
  /**
   * Runs a change, and then waits for the synchronous standby, even if nothing changed: an earlier attempt
   * or another command may have made the change, and may still be waiting.
   */
  const write = <Result>(work: Work<Result>) =>
    writing.run(async (connection, attempt) => {
      const result = await work(connection, attempt);
      await connection.query(COMMIT_NOTHING);
      return result;
    }, TIMEOUT_MS);

  return {
    list: () => reading.run(readTokens, TIMEOUT_MS),

    async revision() {
      const rows = await reading.run(
        ({ query }) => query<{ revision: string }>(REVISION),
        REVISION_TIMEOUT_MS,
      );
      return rows[0]?.revision ?? "";
    },

    add({ name, digest, createdAt, expiresAt, revokedAt, scopes }) {
      const moments = [createdAt, expiresAt, revokedAt].map((at) => at?.toISOString() ?? null);
      const row = [name, digest, ...moments, formatScopes(scopes)];

      return write(async ({ query }, attempt) => {
        if ((await query(ADD, row)).length > 0) return true;
        // An earlier attempt may have added it.
        return attempt > 0 && (await query(SAME, [name, digest])).length > 0;
      });
    },

    async revoke(name, revokedAt) {
      const moment = revokedAt.toISOString();
      return (await write(({ query }) => query(REVOKE, [moment, moment, name]))).length > 0;
    },

    delete: async (name) => (await write(deleting(DELETE, name))) > 0,

    prune: (at) => write(deleting(PRUNE, at.toISOString())),

    async recordUses(uses) {
      const columns = [uses.map(({ name }) => name), uses.map(({ at }) => at.toISOString())];
      await writing.run(({ query }) => query(RECORD_USES, columns.map(textArray)), TIMEOUT_MS);
    },
  };
}
