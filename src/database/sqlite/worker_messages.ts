import { formatScopes, parseScopes } from "../../auth/token_store.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { StoreOutcome } from "../database.ts";
import type { TokenPage } from "./tokens.ts";

// Batches, outcomes and pages of tokens are strings, which Bun copies without a structured clone: a clone takes half of
// the time of a batch of one plant.

/** A batch for the Worker. */
export interface Batch {
  readonly timeoutMs: number;
  readonly plants: readonly NewPlant[];
}

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
export function decodeBatch(message: string): Batch {
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

/** Writes a page of tokens as JSON. */
export function encodeTokens({ tokens, last }: TokenPage): string {
  const rows = tokens.map(({ name, digest, createdAt, expiresAt, revokedAt, lastUsedAt, scopes }) => {
    const times = [createdAt, expiresAt, revokedAt, lastUsedAt].map((time) => time?.getTime() ?? null);
    return [name, digest.toHex(), formatScopes(scopes), ...times];
  });
  return JSON.stringify({ rows, last: last === undefined ? null : String(last) });
}

type TokenRow = [
  name: string,
  digest: string,
  scopes: string,
  createdAt: number,
  expiresAt: number | null,
  revokedAt: number | null,
  lastUsedAt: number | null,
];

/** The inverse of {@linkcode encodeTokens}. */
export function decodeTokens(message: string): TokenPage {
  const { rows, last } = JSON.parse(message) as { rows: TokenRow[]; last: string | null };
  const date = (time: number | null) => (time === null ? null : new Date(time));
  const tokens = rows.map(([name, digest, scopes, createdAt, expiresAt, revokedAt, lastUsedAt]) => ({
    name,
    digest: Uint8Array.fromHex(digest),
    createdAt: new Date(createdAt),
    expiresAt: date(expiresAt),
    revokedAt: date(revokedAt),
    lastUsedAt: date(lastUsedAt),
    scopes: parseScopes(scopes),
  }));
  return { tokens, last: last === null ? undefined : BigInt(last) };
}
