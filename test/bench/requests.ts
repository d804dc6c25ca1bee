import { TOKEN } from "../support/client.ts";

/** Where the generators put each request's own id: 16 digits, so that every request has the same length. */
export const ID_PLACE = "0".repeat(16);

const PLANT = `{"id":${ID_PLACE},"name":"Monstera deliciosa","tag":"indoor"}`;

/** How a request differs from that of a good plant. */
export interface RequestOptions {
  /** @default "/plants" */
  readonly path?: string;
  /** The bearer token; `null` for no credentials. @default the known one */
  readonly token?: string | null;
  /** @default a plant of its own id */
  readonly body?: string;
}

/** The bytes of a POST request, with {@linkcode ID_PLACE} where the id goes. */
export function rawRequest({ path = "/plants", token = TOKEN, body = PLANT }: RequestOptions = {}): string {
  const head = [`POST ${path} HTTP/1.1`, "Host: 127.0.0.1", "Content-Type: application/json"];
  if (token !== null) head.push(`Authorization: Bearer ${token}`);
  return [...head, `Content-Length: ${Buffer.byteLength(body)}`, "", body].join("\r\n");
}
