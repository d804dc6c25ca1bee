import { parseScopes, type TokenRecord } from "../../auth/token_store.ts";
import type { NewPlant } from "../../plant/plant.ts";

// Batches, outcomes and pages of tokens are JSON, because Bun copies a string without a structured
// clone: a clone takes a lone client two microseconds for each plant, and more once it is cold.

/** Writes a batch, whose ids a JSON number could not hold. */
export function encodeBatch(plants: readonly NewPlant[], timeoutMs: number): string {
  const written = plants.map((plant) => ({ ...plant, id: String(plant.id) }));
  return JSON.stringify({ timeoutMs, plants: written });
}

/** The inverse of {@linkcode encodeBatch}. */
export function decodeBatch(message: string) {
  const { timeoutMs, plants } = JSON.parse(message) as {
    readonly timeoutMs: number;
    readonly plants: readonly (Omit<NewPlant, "id"> & { readonly id: string })[];
  };
  return { timeoutMs, plants: plants.map((plant) => ({ ...plant, id: BigInt(plant.id) })) };
}

/** A token as SQLite writes it into a page. */
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

/** How many tokens a page has. Only the last one has fewer. */
export const PAGE_TOKENS = 1_000;

/**
 * Reads all tokens, oldest first, in pages: the Worker takes plants between two of them.
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

/** The token of a row, as the port has it. */
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
