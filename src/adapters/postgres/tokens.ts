import { and, asc, count, eq, isNull, max, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sql";
import { type Scope, SCOPES } from "../../scopes.ts";
import type { NewToken, TokenRecord, TokenUse } from "../../token_store.ts";
import { textArray } from "./arrays.ts";
import type { Connection } from "./connection.ts";
import { tokens } from "./schema.ts";

const { placeholder } = sql;
const db = drizzle.mock();

/** By bytes, as everywhere: a collation is the database's own. */
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
    scopes: scopesOf(row.scopes),
  }));
}

/** Of what a newer plant-store may know, what this one knows. */
function scopesOf(text: string): readonly Scope[] {
  const words = text.split(" ");
  return SCOPES.filter((scope) => words.includes(scope));
}

const REVISION = db
  .select({ all: count(), newest: max(tokens.createdAt), revoked: count(tokens.revokedAt) })
  .from(tokens)
  .toSQL().sql;

/** Tells whether tokens changed, by hand, too. It reads every row: some milliseconds where there are 100,000. */
export async function tokenRevision(connection: Connection): Promise<string> {
  return JSON.stringify(await connection.query(REVISION));
}

const ADD = db
  .insert(tokens)
  .select(
    sql`SELECT ${placeholder("name")}::text, ${placeholder("digest")}::bytea, ${placeholder("createdAt")}::timestamptz, ${placeholder("expiresAt")}::timestamptz, NULL::timestamptz, NULL::timestamptz, ${placeholder("scopes")}::text`,
  )
  .onConflictDoNothing()
  .returning({ name: tokens.name })
  .toSQL().sql;
const SAME = db
  .select({ name: tokens.name })
  .from(tokens)
  .where(and(eq(tokens.name, placeholder("name")), eq(tokens.digest, placeholder("digest"))))
  .toSQL().sql;

/** Stores a new token; a later attempt may find what an earlier one stored. */
export async function addToken(
  connection: Connection,
  { name, digest, createdAt, expiresAt, scopes }: NewToken,
  attempt: number,
): Promise<boolean> {
  const moments = [createdAt.toISOString(), expiresAt?.toISOString() ?? null];
  const added = await connection.query(ADD, [name, digest, ...moments, scopes.join(" ")]);
  if (added.length > 0 || attempt === 0) return added.length > 0;
  return (await connection.query(SAME, [name, digest])).length > 0;
}

const REVOKE = db
  .update(tokens)
  .set({ revokedAt: sql`${placeholder("at")}::timestamptz` })
  .where(and(eq(tokens.name, placeholder("name")), isNull(tokens.revokedAt)))
  .returning({ name: tokens.name })
  .toSQL().sql;

/** Revokes a token that is valid. */
export async function revokeToken(connection: Connection, name: string, at: Date): Promise<boolean> {
  return (await connection.query(REVOKE, [at.toISOString(), name])).length > 0;
}

const RECORD_USES = `UPDATE tokens SET last_used_at = uses.at
  FROM (SELECT name, max(at) AS at FROM unnest($1::text[], $2::timestamptz[]) AS use (name, at) GROUP BY name) AS uses
  WHERE tokens.name = uses.name AND (last_used_at IS NULL OR last_used_at < uses.at)`;

/** Records when tokens were last used. */
export async function recordTokenUses(connection: Connection, uses: readonly TokenUse[]): Promise<void> {
  const columns = [uses.map(({ name }) => name), uses.map(({ at }) => at.toISOString())];
  await connection.query(RECORD_USES, columns.map(textArray));
}
