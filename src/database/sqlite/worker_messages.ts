import { formatScopes, parseScopes, type TokenStore } from "../../auth/token_store.ts";
import { type ErrorCode, PlantStoreError } from "../../errors.ts";
import type { NewPlant } from "../../plant/plant.ts";
import { DatabaseError, type PlantStore, type StoreOutcome } from "../database.ts";
import type { TokenPage } from "./tokens.ts";

// Batches, outcomes and pages of tokens are strings, which Bun copies without a structured clone. A clone takes half of
// the time that a batch of one plant is on its way, and half of the CPU time for many tokens.

/** A batch for the Worker. */
export interface BatchMessage {
  /** The response has the same. */
  readonly id: number;
  readonly timeoutMs: number;
  readonly plants: readonly NewPlant[];
}

/** Writes a batch as a line of numbers, three for each plant, followed by all texts. */
export function encodeBatch({ id, timeoutMs, plants }: BatchMessage): string {
  let numbers = `${id} ${timeoutMs}`;
  let texts = "";
  for (const { id: plantId, name, tag } of plants) {
    numbers += ` ${plantId} ${name.length} ${tag === undefined ? NO_TAG : tag.length}`;
    texts += tag === undefined ? name : name + tag;
  }
  return `${numbers}\n${texts}`;
}

const NO_TAG = "-";

/** The inverse of {@linkcode encodeBatch}. */
export function decodeBatch(message: string): BatchMessage {
  let at = message.indexOf("\n");
  const [id, timeoutMs, ...numbers] = message.slice(0, at++).split(" ");
  const plants: NewPlant[] = [];
  for (let index = 0; index < numbers.length; index += 3) {
    const [plantId, nameLength, tagLength] = [
      BigInt(numbers[index] as string),
      Number(numbers[index + 1]),
      numbers[index + 2],
    ];
    const name = message.slice(at, (at += nameLength));
    if (tagLength === NO_TAG) plants.push({ id: plantId, name });
    else plants.push({ id: plantId, name, tag: message.slice(at, (at += Number(tagLength))) });
  }
  return { id: Number(id), timeoutMs: Number(timeoutMs), plants };
}

/** Writes the outcomes of a batch, one letter each. */
export function encodeOutcomes(id: number, outcomes: readonly StoreOutcome[]): string {
  let letters = "";
  for (const outcome of outcomes) letters += outcome[0];
  return `${id} ${letters}`;
}

const OUTCOMES: Readonly<Record<string, StoreOutcome>> = { a: "added", p: "present", c: "conflict", u: "unavailable" };

/** The inverse of {@linkcode encodeOutcomes}: the response to the batch. */
export function decodeOutcomes(message: string): WorkerResponse {
  const at = message.indexOf(" ");
  const outcomes = Array.from(message.slice(at + 1), (letter) => OUTCOMES[letter] as StoreOutcome);
  return { type: "result", id: Number(message.slice(0, at)), result: outcomes };
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

/**
 * What the Worker does, one request after the other, besides adding batches. The methods of `TokenStore` are called on
 * the tokens.
 */
export interface WorkerApi extends Omit<TokenStore, "list"> {
  /** Resolves to a warning for the operator, if there is one. */
  open(path: string): Promise<string | undefined>;
  probe: PlantStore["probe"];
  /** Resolves to a page as {@linkcode encodeTokens} writes it. */
  tokensAfter(row: bigint): Promise<string>;
  reportCorruption(finding: string): Promise<void>;
  close(): Promise<void>;
}

/** A request to the Worker. The response has the same id. */
export type WorkerRequest = {
  [Method in keyof WorkerApi]: { id: number; method: Method; args: Parameters<WorkerApi[Method]> };
}[keyof WorkerApi];

/** A response of the Worker; or, without a request, the news that the database or a checkpoint failed. */
export type WorkerResponse =
  | { readonly type: "result"; readonly id: number; readonly result: unknown }
  | { readonly type: "error"; readonly id: number; readonly error: SerializedError }
  | { readonly type: "failed"; readonly error: SerializedError }
  | { readonly type: "checkpoint_failed"; readonly error: SerializedError };

/** An error for a structured clone, which would turn errors of our own classes into plain ones. */
export interface SerializedError {
  readonly name: string;
  readonly message: string;
  readonly code?: ErrorCode;
  readonly cause?: string;
}

/** Turns an error into an object that can be cloned. */
export function serializeError(error: unknown): SerializedError {
  if (error instanceof PlantStoreError) {
    const { name, message, code, cause } = error;
    return { name, message, code, cause: String(cause) };
  }
  if (error instanceof Error) return { name: error.name, message: error.message, cause: String(error.stack) };
  return { name: "Error", message: String(error) };
}

/** The inverse of {@linkcode serializeError}. */
export function deserializeError({ name, message, code, cause }: SerializedError): Error {
  if (code !== undefined) return new PlantStoreError(code, message, { cause });
  if (name === "DatabaseError") return new DatabaseError(message, { cause });
  return new Error(message, { cause });
}
