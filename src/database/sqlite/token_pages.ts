import { parseScopes, type TokenRecord } from "../../auth/token_store.ts";
import type { Client } from "./bun_driver.ts";

/**
 * The number of tokens in every page but the last. A page takes a millisecond or two. Reading all tokens at once
 * would delay plants.
 */
const PAGE_TOKENS = 1_000;

/**
 * Selects a page of tokens after a row. Returns JSON, because Bun copies a string to another thread without a
 * structured clone.
 */
const TOKEN_PAGE = `
  SELECT json_group_array(json_array(
    rowid, name, hex(digest), scopes, created_at, expires_at, revoked_at, last_used_at))
  FROM (SELECT rowid, * FROM tokens WHERE rowid > ? ORDER BY rowid LIMIT ${PAGE_TOKENS})`;

/**
 * Prepares reading pages of tokens.
 *
 * @returns A function that returns the page after a row, as JSON for {@linkcode allTokens}.
 */
export function tokenPages(client: Client): (row: number) => string {
  const select = client.prepare<never, [number]>(TOKEN_PAGE);
  return (row) => String(select.values(row)[0]?.[0]);
}

/**
 * Reads all tokens in pages, so that the Worker can store plants in between. Returns the oldest first.
 *
 * @param pageAfter Reads the tokens after a row, as JSON.
 */
export async function allTokens(
  pageAfter: (row: number) => Promise<string>,
): Promise<TokenRecord[]> {
  const tokens: TokenRecord[] = [];
  let rows: TokenRow[];
  // SQLite numbers rows from 1.
  let last = 0;

  do {
    rows = JSON.parse(await pageAfter(last)) as TokenRow[];
    for (const row of rows) tokens.push(toRecord(row));
    last = rows.at(-1)?.[0] ?? last;
  } while (rows.length === PAGE_TOKENS);

  return tokens.toSorted(
    (one, other) => +one.createdAt - +other.createdAt || (one.name < other.name ? -1 : 1),
  );
}

/** A token in the JSON of a page. */
type TokenRow = [
  row: number,
  name: string,
  digest: string,
  scopes: string | null,
  createdAt: number,
  expiresAt: number | null,
  revokedAt: number | null,
  lastUsedAt: number | null,
];

/** Converts a row to a token. */
function toRecord([
  ,
  name,
  digest,
  scopes,
  createdAt,
  expiresAt,
  revokedAt,
  lastUsedAt,
]: TokenRow): TokenRecord {
  const date = (time: number | null) => (time === null ? null : new Date(time));
  return {
    name,
    digest: Uint8Array.fromHex(digest),
    createdAt: new Date(createdAt),
    expiresAt: date(expiresAt),
    revokedAt: date(revokedAt),
    lastUsedAt: date(lastUsedAt),
    scopes: parseScopes(scopes),
  };
}
