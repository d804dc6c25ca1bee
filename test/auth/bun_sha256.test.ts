import { expect, test } from "bun:test";
import { sha256 as nodeSha256 } from "../../src/auth/node_sha256.ts";
import { sha256 as bunSha256 } from "../../src/auth/bun_sha256.ts";

const IMPLEMENTATIONS = [
  ["node:crypto", nodeSha256],
  ["Bun", bunSha256],
] as const;

// FIPS 180-4, the example of its authors.
const ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

test.each(IMPLEMENTATIONS)("sha256() by %s gives the digest in new bytes", (_by, sha256) => {
  const digest = sha256("abc");
  expect(Buffer.from(digest).toString("hex")).toBe(ABC);
  sha256("another text");
  expect(Buffer.from(digest).toString("hex")).toBe(ABC);
});

test.each(IMPLEMENTATIONS)("sha256() by %s gives the digest in base64, with its padding", (_by, sha256) => {
  expect(sha256("abc", "base64")).toBe(Buffer.from(ABC, "hex").toString("base64"));
});
