import { formatScopes, parseScopes, type TokenRecord } from "../../auth/token_store.ts";
import type { TokenPage } from "./tokens.ts";

/**
 * Tokens by columns, on their way from the Worker: a structured clone of an object for each takes ten times as long, and
 * the server's thread does nothing else meanwhile.
 */
export interface TokenColumns {
  readonly names: readonly string[];
  /** {@linkcode DIGEST_BYTES} of each. */
  readonly digests: Uint8Array;
  /** Of each when it was made, expires, was revoked and was last used, in milliseconds since 1970 UTC, or `NaN`. */
  readonly times: Float64Array;
  /** Those of a token on each line. */
  readonly scopes: string;
  /** See {@linkcode TokenPage}. */
  readonly last: bigint | undefined;
}

/** Of a SHA-256. */
const DIGEST_BYTES = 32;
const TIMES = 4;

/** Turns tokens into columns. */
export function toTokenColumns({ tokens, last }: TokenPage): TokenColumns {
  const digests = new Uint8Array(DIGEST_BYTES * tokens.length);
  const times = new Float64Array(TIMES * tokens.length);
  tokens.forEach(({ digest, createdAt, expiresAt, revokedAt, lastUsedAt }, row) => {
    digests.set(digest.subarray(0, DIGEST_BYTES), DIGEST_BYTES * row);
    times[TIMES * row] = createdAt.getTime();
    times[TIMES * row + 1] = expiresAt?.getTime() ?? Number.NaN;
    times[TIMES * row + 2] = revokedAt?.getTime() ?? Number.NaN;
    times[TIMES * row + 3] = lastUsedAt?.getTime() ?? Number.NaN;
  });
  return {
    names: tokens.map(({ name }) => name),
    digests,
    times,
    scopes: tokens.map(({ scopes }) => formatScopes(scopes)).join("\n"),
    last,
  };
}

/** The inverse of {@linkcode toTokenColumns}. */
function fromTokenColumns({ names, digests, times, scopes }: TokenColumns): TokenRecord[] {
  const timeAt = (index: number) => {
    const time = times[index] as number;
    return Number.isNaN(time) ? null : new Date(time);
  };
  const lines = scopes.split("\n");
  return names.map((name, row) => ({
    name,
    digest: digests.subarray(DIGEST_BYTES * row, DIGEST_BYTES * (row + 1)),
    createdAt: new Date(times[TIMES * row] as number),
    expiresAt: timeAt(TIMES * row + 1),
    revokedAt: timeAt(TIMES * row + 2),
    lastUsedAt: timeAt(TIMES * row + 3),
    scopes: parseScopes(lines[row] as string),
  }));
}

/** All tokens, oldest first, page by page: between two pages the Worker takes plants, and the server's thread requests. */
export async function allTokens(pageAfter: (row: bigint) => Promise<TokenColumns>): Promise<TokenRecord[]> {
  const tokens: TokenRecord[] = [];
  for (let row: bigint | undefined = FIRST_ROW; row !== undefined;) {
    const page: TokenColumns = await pageAfter(row);
    for (const token of fromTokenColumns(page)) tokens.push(token);
    row = page.last;
  }
  return tokens.toSorted((one, other) => +one.createdAt - +other.createdAt || (one.name < other.name ? -1 : 1));
}

/** SQLite gives rows numbers from 1 on. */
const FIRST_ROW = 0n;
