import { expect, spyOn, test } from "bun:test";
import { hash } from "node:crypto";

import { digestKey, mintToken, unknownToken } from "../../src/auth/token_format.ts";

const ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const sha256 = (text: string) => hash("sha256", text, "buffer");

test("unknownToken() tells a mistyped token of ours from an unknown one, and both from those of other issuers", () => {
  const { token } = mintToken();
  const ours = (reason: string) => ({ ok: false as const, reason, isForeign: false });
  expect(unknownToken(token)).toEqual(ours("unknown"));

  for (let i = "plant_".length; i < token.length; i++) {
    const other = token[i] === "x" ? "y" : "x";
    const mistyped = token.slice(0, i) + other + token.slice(i + 1);
    expect(unknownToken(mistyped)).toEqual(ours("mistyped"));
  }

  expect(unknownToken(token.slice(0, -1))).toEqual(ours("mistyped"));
  expect(unknownToken("plant_")).toEqual(ours("mistyped"));
  expect(unknownToken("plant_".padEnd(8_193, "x"))).toEqual(ours("too long"));

  const foreign = (reason: string) => ({ ok: false as const, reason, isForeign: true });
  expect(unknownToken("static-token-0123456789")).toEqual(foreign("unknown"));
  expect(unknownToken("x".repeat(8_193))).toEqual(foreign("too long"));
});

test("mintToken() takes its characters from the randomness of the platform, and from nowhere else", () => {
  const token = () => {
    using _ = randomness(bytesThatAre([1, 2, 3, 61, 62, 247]));
    return mintToken().token.slice(0, -6);
  };
  expect(token()).toBe("plant_123z0z123z0z123z0z123z0z123z0z12");
  expect(token()).toBe(token());
});

test("mintToken() makes each character from the same number of bytes", () => {
  const counts = new Map<string, number>();
  for (let byte = 0; byte < 248; byte++) {
    using _ = randomness(bytesThatAre([byte]));
    const character = mintToken().token.at("plant_".length) ?? "";
    counts.set(character, (counts.get(character) ?? 0) + 1);
  }
  expect([...counts.keys()].toSorted().join("")).toBe(ALPHANUMERIC);
  expect([...new Set(counts.values())]).toEqual([4]);
});

test("mintToken() drops the bytes that would make some characters likelier, and asks for more", () => {
  let asked = 0;
  using _ = randomness((bytes) => {
    bytes.fill(1);
    // All but eight bytes are of no use.
    bytes.set([248, 249, 250, 251, 252, 253, 254, 255, ...Array.from({ length: 16 }, () => 255)]);
    asked += bytes.length;
  });

  expect(mintToken().token).toStartWith(`plant_${"1".repeat(32)}`);
  expect(asked).toBe(4 * 32);
});

/** Replaces the randomness of the platform until it is disposed of. */
function randomness(fill: (bytes: Uint8Array) => void) {
  const filled = <Bytes extends ArrayBufferView | null>(bytes: Bytes) => {
    fill(bytes as unknown as Uint8Array);
    return bytes;
  };
  return spyOn(crypto, "getRandomValues").mockImplementation(filled);
}

// Node's hashes and most database drivers give these, many of them cut from one pool.
test("digestKey() takes digests that are parts of a larger buffer, and Node's Buffers", () => {
  const both = [7, ...sha256("one"), ...sha256("two")];
  for (const buffer of [new Uint8Array(both), Buffer.from(both)]) {
    const keys = [buffer.subarray(1, 33), buffer.subarray(33)].map(digestKey);
    expect(keys).toEqual([sha256("one"), sha256("two")].map(digestKey));
  }
});

function bytesThatAre(pattern: readonly number[]) {
  let at = 0;
  return (bytes: Uint8Array) =>
    bytes.forEach((_, i) => (bytes[i] = pattern[at++ % pattern.length] ?? 0));
}
