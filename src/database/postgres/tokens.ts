import { and, asc, eq, isNotNull, isNull, lte, or, type SQL, sql, type SQLWrapper } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";
import { PgDialect } from "drizzle-orm/pg-core";
import { formatScopes, parseScopes, type TokenStore } from "../../auth/token_store.ts";
import type { Connection } from "./connection.ts";
import type { Pool, Work } from "./pool.ts";
import { textArray, tokenRevision, tokens } from "./schema.ts";

const { placeholder } = sql;
const db = drizzle.mock();

/** By bytes, as on SQLite. The database's own collation may differ. */
const LIST = db
  .select()
  .from(tokens)
  .orderBy(asc(tokens.createdAt), sql`${tokens.name} COLLATE "C"`)
  .toSQL().sql;

interface TokenRow {
  readonly name: string;
  readonly digest: Uint8Array;
  readonly created_at: Date;
  readonly expires_at: Date | null;
  readonly revoked_at: Date | null;
  readonly last_used_at: Date | null;
  readonly scopes: string;
}

const REVISION = db.select({ revision: tokenRevision.revision }).from(tokenRevision).toSQL().sql;

/**
 * A statement that changes tokens and returns their names. If it changed any, it also changes the revision, which tells
 * every server. The revision is random: after a failover that lost the last change, a counter would repeat that change's
 * number, and a server that knows it would miss the next change.
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
      sql`SELECT ${placeholder("name")}::text, ${placeholder("digest")}::bytea, ${placeholder("createdAt")}::timestamptz, ${placeholder("expiresAt")}::timestamptz, NULL::timestamptz, NULL::timestamptz, ${placeholder("scopes")}::text`,
    )
    .onConflictDoNothing()
    .returning({ name: tokens.name }),
);
const SAME = db
  .select({ name: tokens.name })
  .from(tokens)
  .where(and(eq(tokens.name, placeholder("name")), eq(tokens.digest, placeholder("digest"))))
  .toSQL().sql;

const REVOKE = changing(
  db
    .update(tokens)
    .set({ revokedAt: sql`${placeholder("at")}::timestamptz` })
    .where(and(eq(tokens.name, placeholder("name")), isNull(tokens.revokedAt)))
    .returning({ name: tokens.name }),
);

const REVOKED_THEN = db
  .select({ name: tokens.name })
  .from(tokens)
  .where(and(eq(tokens.revokedAt, sql`${placeholder("at")}::timestamptz`), eq(tokens.name, placeholder("name"))))
  .toSQL().sql;

const DELETE = deletionOf(eq(tokens.name, placeholder("name")));
const PRUNE = deletionOf(
  or(isNotNull(tokens.revokedAt), lte(tokens.expiresAt, sql`${placeholder("at")}::timestamptz`)),
);

/** If a reply was lost, nothing shows what that attempt deleted. So each attempt reads first, and remembers the names. */
function deleting({ find, remove }: Deletion, parameter: string): Work<number> {
  const found = new Set<string>();
  const keep = ({ name }: Pick<TokenRow, "name">) => void found.add(name);
  return async (connection, attempt) => {
    (await connection.query<TokenRow>(find, [parameter])).forEach(keep);
    const deleted = await connection.query<TokenRow>(remove, [parameter]);
    if (attempt === 0) return deleted.length;
    deleted.forEach(keep);
    return found.size;
  };
}

/** The statements that find and delete tokens. */
interface Deletion {
  readonly find: string;
  readonly remove: string;
}

function deletionOf(condition: SQL | undefined): Deletion {
  const { name } = tokens;
  return {
    find: db.select({ name }).from(tokens).where(condition).toSQL().sql,
    remove: changing(db.delete(tokens).where(condition).returning({ name })),
  };
}

const RECORD_USES = `UPDATE tokens SET last_used_at = uses.at
  FROM (SELECT name, max(at) AS at FROM unnest($1::text[], $2::timestamptz[]) AS use (name, at) GROUP BY name) AS uses
  WHERE tokens.name = uses.name AND (last_used_at IS NULL OR last_used_at < uses.at)`;

/** The time limit for tokens, in milliseconds. */
const TIMEOUT_MS = 10_000;
/** The time limit for reading the revision of the tokens, in milliseconds: a revocation must take effect soon. */
const REVISION_TIMEOUT_MS = 2_000;

/** The tokens. Reads, which wait for no standby, have a pool of their own: they never wait for writes. */
export function tokenStore(reading: Pool, writing: Pool): TokenStore {
  const write = <Result>(work: Work<Result>) => writing.run(work, TIMEOUT_MS);
  return {
    async list() {
      const rows = await reading.run((connection) => connection.query<TokenRow>(LIST), TIMEOUT_MS);
      return rows.map((row) => ({
        name: row.name,
        digest: new Uint8Array(row.digest),
        createdAt: row.created_at,
        expiresAt: row.expires_at,
        revokedAt: row.revoked_at,
        lastUsedAt: row.last_used_at,
        scopes: parseScopes(row.scopes),
      }));
    },
    async revision() {
      const read = (connection: Connection) => connection.query<{ revision: string }>(REVISION);
      return (await reading.run(read, REVISION_TIMEOUT_MS))[0]?.revision ?? "";
    },
    add({ name, digest, createdAt, expiresAt, scopes }) {
      const moments = [createdAt.toISOString(), expiresAt?.toISOString() ?? null];
      const row = [name, digest, ...moments, formatScopes(scopes)];
      return write(async ({ query }, attempt) => {
        if ((await query(ADD, row)).length > 0) return true;
        // An earlier attempt may have added it.
        return attempt > 0 && (await query(SAME, [name, digest])).length > 0;
      });
    },
    revoke(name, at) {
      const parameters = [at.toISOString(), name];
      return write(async ({ query }, attempt) => {
        if ((await query(REVOKE, parameters)).length > 0) return true;
        // An earlier attempt may have revoked it.
        return attempt > 0 && (await query(REVOKED_THEN, parameters)).length > 0;
      });
    },
    delete: async (name) => (await write(deleting(DELETE, name))) > 0,
    prune: (at) => write(deleting(PRUNE, at.toISOString())),
    async recordUses(uses) {
      const columns = [uses.map(({ name }) => name), uses.map(({ at }) => at.toISOString())];
      await write((connection) => connection.query(RECORD_USES, columns.map(textArray)));
    },
  };
}
