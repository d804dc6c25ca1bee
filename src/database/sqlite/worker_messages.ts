import { parseScopes, type TokenRecord } from "../../auth/token_store.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { StoreOutcome } from "../database.ts";

// Batches, outcomes and pages of tokens are strings, which Bun copies without a structured clone: a clone takes half of
// the time of a batch of one plant.

/** Writes a batch as a line of numbers, three for each plant, followed by all texts. */
export function encodeBatch(plants: readonly NewPlant[], timeoutMs: number): string {
  let numbers = `${timeoutMs}`;
  let texts = "";
  for (const { id, name, tag } of plants) {
    numbers += ` ${id} ${name.length} ${tag === undefined ? NO_TAG : tag.length}`;
    texts += tag === undefined ? name : name + tag;
  }
  return `${numbers}\n${texts}`;
}

const NO_TAG = "-";

/** The inverse of {@linkcode encodeBatch}. */
export function decodeBatch(message: string) {
  let at = message.indexOf("\n");
  const [timeoutMs, ...numbers] = message.slice(0, at++).split(" ");
  const plants: NewPlant[] = [];
  for (let index = 0; index < numbers.length; index += 3) {
    const id = BigInt(numbers[index] as string);
    const tagLength = numbers[index + 2];
    const name = message.slice(at, (at += Number(numbers[index + 1])));
    if (tagLength === NO_TAG) plants.push({ id, name });
    else plants.push({ id, name, tag: message.slice(at, (at += Number(tagLength))) });
  }
  return { timeoutMs: Number(timeoutMs), plants };
}

/** Writes the outcomes of a batch, one letter each. */
export function encodeOutcomes(outcomes: readonly StoreOutcome[]): string {
  let letters = "";
  for (const outcome of outcomes) letters += outcome[0];
  return letters;
}

const OUTCOMES: Readonly<Record<string, StoreOutcome>> = { a: "added", p: "present", c: "conflict", u: "unavailable" };

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

/**
 * Reads all tokens, oldest first, in pages: the Worker takes plants between two of them.
 *
 * @param pageAfter Reads the tokens after a row, as JSON.
 */
export async function allTokens(pageAfter: (row: number) => Promise<string>): Promise<TokenRecord[]> {
  const tokens: TokenRecord[] = [];
  // SQLite numbers rows from 1.
  for (let last: number | undefined = 0; last !== undefined;) {
    const rows = JSON.parse(await pageAfter(last)) as TokenRow[];
    for (const row of rows) tokens.push(toRecord(row));
    last = rows.at(-1)?.[0];
  }
  return tokens.toSorted((one, other) => +one.createdAt - +other.createdAt || (one.name < other.name ? -1 : 1));
}

function toRecord([, name, digest, scopes, createdAt, expiresAt, revokedAt, lastUsedAt]: TokenRow): TokenRecord {
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
