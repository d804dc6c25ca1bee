import { and, asc, eq, isNotNull, isNull, lte, or, type SQL, sql, type SQLWrapper } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";
import { PgDialect } from "drizzle-orm/pg-core";
import { formatScopes, type NewToken, parseScopes, type TokenRecord, type TokenUse } from "../../auth/token_store.ts";
import type { Connection } from "./connection.ts";
import type { Work } from "./pool.ts";
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

/** Reads every token, oldest first. */
export async function listTokens(connection: Connection): Promise<readonly TokenRecord[]> {
  const rows = await connection.query<TokenRow>(LIST);
  return rows.map((row) => ({
    name: row.name,
    digest: new Uint8Array(row.digest),
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    revokedAt: row.revoked_at,
    lastUsedAt: row.last_used_at,
    scopes: parseScopes(row.scopes),
  }));
}

const REVISION = db.select({ revision: tokenRevision.revision }).from(tokenRevision).toSQL().sql;

/** Reads the revision, which differs after each change of the tokens. */
export async function revisionOfTokens(connection: Connection): Promise<string> {
  const [row] = await connection.query<{ revision: string }>(REVISION);
  return row?.revision ?? "";
}

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

/** Stores a new token. A later attempt may find the token of an earlier one. */
export async function addToken(
  connection: Connection,
  { name, digest, createdAt, expiresAt, scopes }: NewToken,
  attempt: number,
): Promise<boolean> {
  const moments = [createdAt.toISOString(), expiresAt?.toISOString() ?? null];
  const added = await connection.query(ADD, [name, digest, ...moments, formatScopes(scopes)]);
  if (added.length > 0 || attempt === 0) return added.length > 0;
  return (await connection.query(SAME, [name, digest])).length > 0;
}

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

/** Revokes a valid token. A later attempt may find it revoked by an earlier one. */
export async function revokeToken(connection: Connection, name: string, at: Date, attempt: number): Promise<boolean> {
  const parameters = [at.toISOString(), name];
  const revoked = await connection.query(REVOKE, parameters);
  if (revoked.length > 0 || attempt === 0) return revoked.length > 0;
  return (await connection.query(REVOKED_THEN, parameters)).length > 0;
}

const DELETE = deletionOf(eq(tokens.name, placeholder("name")));
const PRUNE = deletionOf(
  or(isNotNull(tokens.revokedAt), lte(tokens.expiresAt, sql`${placeholder("at")}::timestamptz`)),
);

/** Deletes a token. Returns the number of deleted tokens: 0 or 1. */
export function deleteToken(name: string): Work<number> {
  return deleting(DELETE, name);
}

/** Deletes revoked and expired tokens. Returns their number. */
export function pruneTokens(at: Date): Work<number> {
  return deleting(PRUNE, at.toISOString());
}

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

/** Records when tokens were last used. */
export async function recordTokenUses(connection: Connection, uses: readonly TokenUse[]): Promise<void> {
  const columns = [uses.map(({ name }) => name), uses.map(({ at }) => at.toISOString())];
  await connection.query(RECORD_USES, columns.map(textArray));
}
