/** The token that the programs under test are given as `AUTH_TOKENS`, and test apps know. */
export const TOKEN = "known-token-0123456789";

/**
 * Where nobody listens: the port of the discard service (RFC 863), which no system runs any more. One that was free a
 * moment ago could be another test's by now.
 */
export const CLOSED_PORT = 9;

/** What a request has beside its body. */
export interface PostOptions {
  /** The bearer token; `null` for no credentials. @default {@linkcode TOKEN} */
  readonly token?: string | null;
  /** More headers, or others in the place of the usual ones. @default none */
  readonly headers?: Readonly<Record<string, string>>;
  /** The certificates that are trusted. @default the machine's */
  readonly tls?: { readonly ca: Bun.BunFile };
}

/** Sends a `POST /plants` to a running program: a good one, unless told otherwise. */
export function post(
  url: string,
  body: string | object = { id: 1, name: "Fern" },
  { token = TOKEN, headers = {}, tls }: PostOptions = {},
): Promise<Response> {
  return fetch(`${url}/plants`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(token !== null && bearer(token)), ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
    ...(tls && { tls }),
  });
}

/** A header with credentials. */
export function bearer(token = TOKEN): { authorization: string } {
  return { authorization: `Bearer ${token}` };
}

/**
 * How long a change of a token may take to count on a running server, in milliseconds. The README promises five seconds;
 * a machine that runs tests beside it may need more, and a server that reads the tokens too seldom needs much more.
 */
const TOKEN_CHANGE_MS = 15_000;

/** Sends a plant with a token again and again, until the response has the status. */
export async function untilTokenIs(status: 200 | 401, url: string, token: string): Promise<void> {
  const limit = performance.now() + TOKEN_CHANGE_MS;
  while ((await post(url, undefined, { token })).status !== status) {
    if (performance.now() > limit) throw new Error(`The token is not answered ${status} after ${TOKEN_CHANGE_MS} ms`);
    await Bun.sleep(50);
  }
}
