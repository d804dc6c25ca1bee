import { fern } from "./plants.ts";

/** The token that the programs under test are given as `AUTH_TOKENS`, and test apps know. */
export const TOKEN = "known-token-0123456789";

/**
 * Where nobody listens: the port of the discard service (RFC 863). One that was just free could be
 * another test's.
 */
export const CLOSED_PORT = 9;

/**
 * A `POST /plants`, a good one unless told otherwise; headers given replace its own, `null` removes
 * one.
 */
export function postPlant(
  body: BodyInit | object = fern(),
  headers: Readonly<Record<string, string | null>> = {},
  url = "http://localhost:3000",
): Request {
  const all = { ...bearer(), "content-type": "application/json", ...headers };
  const isRaw =
    typeof body === "string" || body instanceof Uint8Array || body instanceof ReadableStream;

  return new Request(`${url}/plants`, {
    method: "POST",
    headers: Object.entries(all).filter((header): header is [string, string] => header[1] !== null),
    body: isRaw ? (body as BodyInit) : exactJson(body),
  });
}

/** JSON whose bigints are numbers with all their digits. */
function exactJson(value: object): string {
  return JSON.stringify(value, (_, member) =>
    typeof member === "bigint" ? rawJSON(member) : member,
  );
}

const { rawJSON } = JSON as unknown as { rawJSON(digits: bigint): object };

/** How a request is sent. */
export interface PostOptions {
  /** The bearer token; `null` for no credentials. @default {@linkcode TOKEN} */
  readonly token?: string | null;
  /** More headers, or others in the place of the usual ones. @default none */
  readonly headers?: Readonly<Record<string, string>>;
  /** The certificates that are trusted. @default the machine's */
  readonly tls?: { readonly ca: Bun.BunFile };
}

/** Sends a {@linkcode postPlant} to a running program. */
export function post(
  url: string,
  body?: string | object,
  { token = TOKEN, headers, tls }: PostOptions = {},
): Promise<Response> {
  const authorization = token === null ? null : `Bearer ${token}`;
  return fetch(postPlant(body, { authorization, ...headers }, url), tls && { tls });
}

/** A header with credentials. */
export function bearer(token = TOKEN): { authorization: string } {
  return { authorization: `Bearer ${token}` };
}

/**
 * How long a change of a token may take to reach a running server, in milliseconds. Five seconds
 * are promised. A busy machine may need more, and a server that reads tokens too rarely needs much
 * more.
 */
const TOKEN_CHANGE_MS = 15_000;

/**
 * Sends a body with a token again and again, until the response has the status.
 *
 * @param body @default a plant. With another, a token that is accepted gets 400
 * @throws {Error} If it never has within {@linkcode TOKEN_CHANGE_MS}.
 */
export async function untilTokenIs(
  status: 200 | 400 | 401 | 403,
  url: string,
  token: string,
  body?: string,
): Promise<void> {
  const limit = performance.now() + TOKEN_CHANGE_MS;
  while ((await post(url, body, { token })).status !== status) {
    if (performance.now() > limit)
      throw new Error(`The token is not answered ${status} after ${TOKEN_CHANGE_MS} ms`);
    await Bun.sleep(50);
  }
}
