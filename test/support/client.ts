/** The token that the programs under test are given as `AUTH_TOKENS`, and test apps know. */
export const TOKEN = "known-token-0123456789";

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
