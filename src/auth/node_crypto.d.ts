/**
 * All that the core takes of `node:crypto`, which Bun, Deno and Node have: it is type-checked
 * without the types of any of them.
 */
export declare function hash(
  algorithm: "sha256",
  text: string,
  encoding: "base64" | "buffer",
): Uint8Array | string;
