/**
 * All that the core takes of `node:crypto`, which Bun, Deno and Node have: it is type-checked
 * without the types of any of them. Many times as fast as `crypto.subtle` for short texts.
 *
 * @returns The digest of a text in UTF-8 (FIPS 180-4), in 32 bytes or in base64 with its padding.
 */
export declare function hash(algorithm: "sha256", text: string, encoding: "buffer"): Uint8Array;
export declare function hash(algorithm: "sha256", text: string, encoding: "base64"): string;
