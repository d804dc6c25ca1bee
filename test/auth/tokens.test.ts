import { expect, test } from "bun:test";
import { sha256 } from "../../src/adapters/sha256.ts";
import { isMistyped, mintToken, type Sha256, tokenFinder } from "../../src/auth/tokens.ts";
import { acceptTokens, postPlant, testApp } from "../support/app.ts";

const ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

test("mintToken() makes a recognisable prefix, 32 random letters and digits, and a checksum of 6", () => {
  for (let i = 0; i < 100; i++) expect(mintToken(sha256)).toMatch(/^plant_[0-9A-Za-z]{38}$/);
});

test("isMistyped() tells a token that was copied wrongly from one that is not known, or none of ours", () => {
  const token = mintToken(sha256);
  expect(isMistyped(token, sha256)).toBe(false);
  for (let i = "plant_".length; i < token.length; i++) {
    const other = token[i] === "x" ? "y" : "x";
    expect(isMistyped(token.slice(0, i) + other + token.slice(i + 1), sha256)).toBe(true);
  }
  expect(isMistyped(token.slice(0, -1), sha256)).toBe(true);
  expect(isMistyped("plant_", sha256)).toBe(true);
  expect(isMistyped("static-token-0123456789", sha256)).toBe(false);
});

test("mintToken() makes another token every time", () => {
  expect(new Set(Array.from({ length: 1_000 }, () => mintToken(sha256))).size).toBe(1_000);
});

test("a minted token is good credentials as it stands", async () => {
  const token = mintToken(sha256);
  const app = testApp({ authenticate: acceptTokens(token) });
  const response = await app.fetch(postPlant({ id: 1, name: "Fern" }, { authorization: `Bearer ${token}` }));
  expect(response.status).toBe(200);
});

test("mintToken() takes its characters from the randomness given, and from nowhere else", () => {
  const token = () => mintToken(sha256, { random: bytesThatAre([1, 2, 3, 61, 62, 247]) }).slice(0, -6);
  expect(token()).toBe("plant_123z0z123z0z123z0z123z0z123z0z12");
  expect(token()).toBe(token());
});

test("mintToken() makes each character from the same number of bytes", () => {
  const counts = new Map<string, number>();
  for (let byte = 0; byte < 248; byte++) {
    const character = mintToken(sha256, { random: bytesThatAre([byte]) }).at(6) ?? "";
    counts.set(character, (counts.get(character) ?? 0) + 1);
  }
  expect([...counts.keys()].toSorted().join("")).toBe(ALPHANUMERIC);
  expect([...new Set(counts.values())]).toEqual([4]);
});

test("mintToken() drops the bytes that would make some characters likelier, and asks for more", () => {
  let asked = 0;
  const random = (bytes: Uint8Array) => {
    bytes.fill(1);
    // All but eight bytes are of no use.
    bytes.set([248, 249, 250, 251, 252, 253, 254, 255, ...Array.from({ length: 16 }, () => 255)]);
    asked += bytes.length;
  };
  expect(mintToken(sha256, { random })).toStartWith(`plant_${"1".repeat(32)}`);
  expect(asked).toBe(4 * 32);
});

test("tokenFinder() knows the tokens whose digests it was given, and no others", () => {
  const known = Array.from({ length: 50 }, () => mintToken(sha256));
  const check = checker(
    known.map((token) => sha256(token)),
    sha256,
  );
  expect(known.map(check)).toEqual(known.map(() => true));
  for (const token of known) {
    for (const other of [`${token}x`, token.slice(0, -1), token.slice(1), token.toLowerCase(), ` ${token}`]) {
      expect(check(other)).toBe(false);
    }
  }
  expect(check("")).toBe(false);
  expect(check(mintToken(sha256))).toBe(false);
});

test("tokenFinder() of no digests knows nobody", () => {
  const check = checker([], sha256);
  expect(check("")).toBe(false);
  expect(check(mintToken(sha256))).toBe(false);
});

test("tokenFinder() knows a token whose digest it was given twice", () => {
  const check = checker([sha256("token"), sha256("token")], sha256);
  expect(check("token")).toBe(true);
  expect(check("other")).toBe(false);
});

test("tokenFinder() compares all 32 bytes of a digest", () => {
  for (let i = 0; i < 32; i++) {
    const digest = sha256("token");
    digest[i] = (digest[i] ?? 0) ^ 1;
    expect(checker([digest], sha256)("token")).toBe(false);
  }
});

test("tokenFinder() finds a digest, wherever it stands among others", () => {
  const others = Array.from({ length: 4 }, (_, i) => sha256(`other ${i}`));
  for (let at = 0; at <= others.length; at++) {
    expect(checker(others.toSpliced(at, 0, sha256("token")), sha256)("token")).toBe(true);
  }
});

test("tokenFinder() takes digests that are parts of a larger buffer", () => {
  const both = new Uint8Array([7, ...sha256("one"), ...sha256("two")]);
  const check = checker([both.subarray(1, 33), both.subarray(33)], sha256);
  expect(["one", "two", "three"].map(check)).toEqual([true, true, false]);
});

// Node's hashes and most database drivers give these, many of them cut from one pool.
test("tokenFinder() takes digests that are Node's Buffers", () => {
  const pool = Buffer.concat([sha256("one"), sha256("two")]);
  const check = checker([pool.subarray(0, 32), pool.subarray(32)], sha256);
  expect(["one", "two", "three"].map(check)).toEqual([true, true, false]);
});

test("tokenFinder() takes a hash function that gives Node's Buffers, cut from one pool", () => {
  const pool = Buffer.alloc(8_192);
  let end = 0;
  const pooled = (text: string) => {
    pool.set(sha256(text), end);
    return pool.subarray(end, (end += 32));
  };
  const check = checker([pooled("one")], pooled);
  expect(["one", "two"].map(check)).toEqual([true, false]);
});

test("tokenFinder() keeps its own copy of the digests", () => {
  const digest = sha256("token");
  const check = checker([digest], sha256);
  digest.fill(0);
  expect(check("token")).toBe(true);
});

test("tokenFinder() hashes once a check, however many tokens it knows", () => {
  const hashed: string[] = [];
  const check = checker([sha256("one"), sha256("two"), sha256("three")], (text) => {
    hashed.push(text);
    return sha256(text);
  });
  check("two");
  check("four");
  expect(hashed).toEqual(["two", "four"]);
});

function bytesThatAre(pattern: readonly number[]) {
  let at = 0;
  return (bytes: Uint8Array) => bytes.forEach((_, i) => (bytes[i] = pattern[at++ % pattern.length] ?? 0));
}

/** Whether a token is among those with these digests, as `tokenFinder` finds it. */
function checker(digests: readonly Uint8Array[], hash: Sha256) {
  const known = digests.map((digest) => ({ digest }));
  const find = tokenFinder(known, hash);
  return (token: string) => {
    const found = find(token);
    return found !== undefined && known.includes(found);
  };
}
