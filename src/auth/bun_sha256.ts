import type { Sha256 } from "./tokens.ts";

/** SHA-256 by Bun: synchronous, and 20 times faster than `crypto.subtle` for a text as short as a token. */
export const sha256 = ((text: string, encoding?: "base64") =>
  encoding === undefined ? Bun.SHA256.hash(text) : Bun.SHA256.hash(text, encoding)) as Sha256;
