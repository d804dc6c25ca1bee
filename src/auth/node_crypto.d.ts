/**
 * The only function of `node:crypto` in the core, which is type-checked without the types of Bun,
 * Deno or Node. For short texts it is many times as fast as `crypto.subtle`.
 *
 * @returns The digest of a text in UTF-8 (FIPS 180-4), in 32 bytes or in base64 with its padding.
 */
export declare function hash(algorithm: "sha256", text: string, encoding: "buffer"): Uint8Array;
export declare function hash(algorithm: "sha256", text: string, encoding: "base64"): string;
