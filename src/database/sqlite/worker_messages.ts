import { parseScopes, type TokenRecord } from "../../auth/token_store.ts";
import { type NewPlant, PLANT_FIELDS, plantOf } from "../../plant/plant.ts";
import type { StoreOutcome } from "../database.ts";

// Batches, outcomes and pages of tokens are strings, which Bun copies without a structured clone: a
// clone takes half of the time of a batch of one plant.

/**
 * Writes a batch as a line of numbers, followed by all texts. For each plant: its id and the length
 * of each text.
 */
export function encodeBatch(plants: readonly NewPlant[], timeoutMs: number): string {
  let numbers = `${timeoutMs}`;
  let texts = "";

  for (const plant of plants) {
    numbers += ` ${plant.id}`;
    for (const field of PLANT_FIELDS) {
      const text = plant[field];
      numbers += text === undefined ? NO_TEXT : ` ${text.length}`;
      texts += text ?? "";
    }
  }

  return `${numbers}\n${texts}`;
}

const NO_TEXT = " -";

/** The inverse of {@linkcode encodeBatch}. */
export function decodeBatch(message: string) {
  let at = message.indexOf("\n");
  const numbers = message.slice(0, at++).split(" ").values();
  const timeoutMs = Number(numbers.next().value);

  function nextText(): string | undefined {
    const length = numbers.next().value;
    return length === "-" ? undefined : message.slice(at, (at += Number(length)));
  }

  const plants: NewPlant[] = [];
  for (const id of numbers) plants.push(plantOf(BigInt(id), nextText));
  return { timeoutMs, plants };
}

/** Writes the outcomes of a batch, one letter each. */
export function encodeOutcomes(outcomes: readonly StoreOutcome[]): string {
  let letters = "";
  for (const outcome of outcomes) letters += outcome[0];
  return letters;
}

const OUTCOMES: Readonly<Record<string, StoreOutcome>> = {
  a: "added",
  p: "present",
  c: "conflict",
  u: "unavailable",
};

/** The inverse of {@linkcode encodeOutcomes}. */
export function decodeOutcomes(letters: string): readonly StoreOutcome[] {
  return Array.from(letters, (letter) => OUTCOMES[letter] as StoreOutcome);
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
