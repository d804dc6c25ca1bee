import type { Sha256 } from "../auth/tokens.ts";

/** SHA-256 by Bun: synchronous, and 20 times faster than `crypto.subtle` for a text as short as a token. */
export const sha256: Sha256 = (text, into = new Uint8Array(32)) => Bun.SHA256.hash(text, into) as Uint8Array;
