import { INT64_MAX, INT64_MIN, type NewPlant } from "../../src/plant.ts";
import { LOAD_TOKEN } from "../support/load.ts";

/** A request, and what DESIGN.md, section 2, says of it. Nothing of it is computed by the program's own code. */
export interface FuzzCase {
  readonly bytes: Buffer;
  /** Status and error number, "200" for a plant that can be stored, or "any" where the HTTP itself is damaged. */
  readonly expected: string;
  /** The plant that a 200 would store: damage can make good what was wrong before the body. */
  readonly plant?: NewPlant | undefined;
}

/** A part of a request, and the error that it alone calls for; none when it is good. */
interface Part<Value> {
  readonly value: Value;
  readonly error?: string | undefined;
}

/** The limit of the program under test, in bytes. */
const MAX_BODY = 65_536;

/** An endless source of requests: good ones, bad ones, and damaged ones. */
export function fuzzCases(random: () => number): () => FuzzCase {
  const dice = makeDice(random);
  return () => (dice.chance(0.15) ? damaged(wholeCase(dice), dice) : wholeCase(dice));
}

/** Choices from a source of random numbers. */
function makeDice(random: () => number) {
  const upTo = (limit: number) => Math.floor(random() * limit);
  return {
    upTo,
    chance: (probability: number) => random() < probability,
    of: <Value>(values: readonly [Value, ...Value[]]): Value => values[upTo(values.length)] ?? values[0],
    times: <Value>(limit: number, make: () => Value): Value[] => Array.from({ length: upTo(limit + 1) }, make),
  };
}

type Dice = ReturnType<typeof makeDice>;

function wholeCase(dice: Dice): FuzzCase {
  const target = makeTarget(dice);
  const headers = [makeCredentials(dice), makeMediaType(dice), makeEncoding(dice)];
  const body = makeBody(dice);
  // In the order of the checks: the first one that finds something answers.
  const size = body.bytes.length > MAX_BODY ? "413/4131" : undefined;
  const errors = [target.error, ...headers.map(({ error }) => error), size, body.error];
  const error = errors.find((error) => error !== undefined);
  const lines = [
    `${target.value} HTTP/1.1`,
    `Host: ${dice.of(["localhost", "x", "a.example:80", "", "[::1]", ":1", "x".repeat(300)])}`,
  ];
  const head = [...lines, ...headers.flatMap(({ value }) => value)];
  const isChunked = dice.chance(0.3);
  head.push(isChunked ? "Transfer-Encoding: chunked" : `Content-Length: ${body.bytes.length}`);
  const payload = isChunked ? chunked(body.bytes, dice) : body.bytes;
  const bytes = Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`, "latin1"), payload]);
  return { bytes, expected: error ?? "200", plant: size === undefined ? body.plant : undefined };
}

/** Mostly the operation itself: what is checked later would never be seen otherwise. */
function makeTarget(dice: Dice): Part<string> {
  if (dice.chance(0.93))
    return { value: `POST ${dice.of(["/plants", "/plants", "/plants?access_token=x&id=1", "/plants?"])}` };
  const method = dice.of(["GET", "PUT", "DELETE", "PATCH", "OPTIONS"]);
  return dice.of<Part<string>>([
    { value: `${method} /plants`, error: "405/4051" },
    { value: "POST /livez", error: "405/4051" },
    {
      value: `POST ${dice.of(["/plantss", "/plants/", "/Plants", "/plant", "/plants/1", "//", "//x/plants"])}`,
      error: "404/4041",
    },
  ]);
}

/** RFC 6750, section 2.1; RFC 9110, section 11.4. */
function makeCredentials(dice: Dice): Part<string[]> {
  const scheme = dice.of(["Bearer", "bearer", "BEARER", "bEaReR"]);
  const good = `${dice.of(["Authorization", "authorization"])}: ${scheme}${" ".repeat(1 + dice.upTo(3))}${LOAD_TOKEN}`;
  if (dice.chance(0.92)) return { value: [good] };
  if (dice.chance(0.2)) return { value: [], error: "401/4011" };
  const bad = dice.of([
    `Basic ${LOAD_TOKEN}`,
    "Bearer",
    `Bearer${LOAD_TOKEN}`,
    `Bearer ${LOAD_TOKEN}x`,
    `Bearer ${LOAD_TOKEN} x`,
    `Bearer ${LOAD_TOKEN}, Bearer ${LOAD_TOKEN}`,
    `Bearer ${LOAD_TOKEN.toUpperCase()}`,
    "Bearer ====",
    LOAD_TOKEN,
    `Bearer "${LOAD_TOKEN}"`,
  ]);
  const value = dice.chance(0.1) ? [good, good] : [`Authorization: ${bad}`];
  return { value, error: "401/4012" };
}

function makeMediaType(dice: Dice): Part<string[]> {
  const good = dice.of([
    "application/json",
    "application/json",
    "APPLICATION/Json",
    "application/json; charset=utf-8",
    "application/json;charset=UTF-8",
    'application/json; charset="utf-8"',
    "application/json; version=1",
    "application/json; version=1; charset=Utf-8",
  ]);
  if (dice.chance(0.95)) return { value: [`Content-Type: ${good}`] };
  const bad = dice.of([
    "text/plain",
    "application/jsonx",
    "application/json-patch+json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "application/json; charset=latin1",
    "json",
    "*/*",
  ]);
  return { value: dice.chance(0.2) ? [] : [`Content-Type: ${bad}`], error: "415/4151" };
}

function makeEncoding(dice: Dice): Part<string[]> {
  if (dice.chance(0.98)) return { value: [] };
  return { value: [`Content-Encoding: ${dice.of(["gzip", "identity", "br", "x"])}`], error: "415/4151" };
}

interface Body {
  readonly bytes: Buffer;
  readonly error?: string | undefined;
  readonly plant?: NewPlant | undefined;
}

function makeBody(dice: Dice): Body {
  if (dice.chance(0.03)) return { bytes: notJson(dice), error: "400/4001" };
  if (dice.chance(0.03)) return { bytes: notAnObject(dice), error: "400/4002" };
  const { text, error, plant } = makeObject(dice);
  if (dice.chance(0.02)) return { bytes: cut(Buffer.from(text), dice), error: "400/4001" };
  if (dice.chance(0.02)) return { bytes: notUtf8(text), error: "400/4001" };
  const padding = dice.chance(0.02) ? MAX_BODY - 60 + dice.upTo(120) - Buffer.byteLength(text) : dice.upTo(4);
  const space = dice.of([" ", "\n", "\t", "\r\n"])[0] ?? " ";
  const bytes = Buffer.from(`${text}${space.repeat(Math.max(0, padding))}`);
  return { bytes, error, plant };
}

function notJson(dice: Dice): Buffer {
  return Buffer.from(
    dice.of([
      "",
      " ",
      "{",
      "}",
      "{]",
      "id=1&name=x",
      "{'id':1}",
      '{"id":1,}',
      '{"id":1}x',
      "\u0000",
      "nul",
      '{"id":01,"name":""}',
      '{"id":+1,"name":""}',
      '{"id":1.,"name":""}',
      '{"id":.5,"name":""}',
      '{"id":0x1,"name":""}',
      '{"id":1,"name":"\u0001"}',
      '{"id":1,"name":"\\x"}',
      '{"id":1 "name":""}',
      '{"id":NaN,"name":""}',
      "[".repeat(1 + dice.upTo(5_000)),
    ]),
  );
}

function notAnObject(dice: Dice): Buffer {
  const depth = 1 + dice.upTo(5_000);
  return Buffer.from(
    dice.of([
      "[]",
      "1",
      "null",
      "true",
      '""',
      '[{"id":1,"name":"x"}]',
      `${"[".repeat(depth)}${"]".repeat(depth)}`,
      "{}",
      '{"__proto__":{"id":1,"name":"x"}}',
      '{"id":1,"__proto__":{"name":"x"}}',
      '{"constructor":{"id":1,"name":"x"}}',
    ]),
  );
}

/** No beginning of an object is JSON. */
function cut(bytes: Buffer, dice: Dice): Buffer {
  return bytes.subarray(0, dice.upTo(bytes.lastIndexOf("}")));
}

/** A byte that starts nothing in UTF-8, in front of the last quotation mark. */
function notUtf8(text: string): Buffer {
  const at = Buffer.from(text).lastIndexOf('"');
  const bytes = Buffer.from(text);
  return Buffer.concat([bytes.subarray(0, at), Buffer.from([0xff]), bytes.subarray(at)]);
}

type Field = "id" | "name" | "tag";

/** An object made member by member, so that its meaning is known without parsing it. The last of a name counts. */
function makeObject(dice: Dice): { text: string; error?: string | undefined; plant?: NewPlant | undefined } {
  const members: string[] = [];
  const meaning = new Map<Field, bigint | string | undefined>();
  const write = (key: string, value: string) =>
    void members.push(`${key}${dice.of(["", " "])}:${dice.of(["", " \n"])}${value}`);
  const fields: readonly Field[] = dice.chance(0.95)
    ? ["id", "name"]
    : dice.of<readonly Field[]>([["id"], ["name"], []]);
  const repeats = dice.chance(0.1) ? dice.times(3, () => dice.of<Field>(["id", "name", "tag"])) : [];
  for (const field of [...repeats, ...fields, ...(dice.chance(0.6) ? (["tag"] as const) : [])] as const) {
    const { source, meaning: value } = field === "id" ? makeNumber(dice) : makeText(dice);
    write(spelled(field, dice), source);
    meaning.set(field, value);
    if (dice.chance(0.1)) write(dice.of(['"ID"', '"x"', '"__proto__"', '"Name "', '""', '"id\\u0000"']), junk(dice));
  }
  const text = `{${members.join(dice.of([",", ", ", "\n,"]))}}`;
  const [id, name, tag] = [meaning.get("id"), meaning.get("name"), meaning.get("tag")];
  const isTagGood = !meaning.has("tag") || typeof tag === "string";
  if (typeof id !== "bigint" || typeof name !== "string" || !isTagGood) return { text, error: "400/4002" };
  return { text, plant: typeof tag === "string" ? { id, name, tag } : { id, name } };
}

/** A member's name, some letters of it as escapes. */
function spelled(name: string, dice: Dice): string {
  const letters = [...name].map((letter) => (dice.chance(0.03) ? `\\u00${letter.charCodeAt(0).toString(16)}` : letter));
  return `"${letters.join("")}"`;
}

function junk(dice: Dice): string {
  return dice.of([
    "1",
    "1e999",
    '"x"',
    "null",
    '{"id":7,"name":"y"}',
    '[1,{"id":"}"}]',
    '"\\ud800"',
    "1.5",
    '"{\\"id\\":3}"',
  ]);
}

/** What is written, and what it means; `undefined` when it is none of the kind. */
interface Written<Meaning> {
  readonly source: string;
  readonly meaning: Meaning | undefined;
}

const SAFE = 2n ** 53n - 1n;

function makeNumber(dice: Dice): Written<bigint> {
  if (dice.chance(0.06)) {
    const source = dice.of([
      '"1"',
      "true",
      "null",
      "[1]",
      "{}",
      '""',
      "1.5",
      "0.1",
      "-0.5",
      "1e-1",
      "1e400",
      "123.456e2",
    ]);
    return { source, meaning: undefined };
  }
  const id = makeId(dice);
  const plain = String(id);
  if (dice.chance(0.8)) return { source: plain, meaning: id >= INT64_MIN && id <= INT64_MAX ? id : undefined };
  // Other spellings count within the integers that a double holds.
  const meaning = id >= -SAFE && id <= SAFE ? id : undefined;
  const digits = plain.replace("-", "");
  const sign = plain.startsWith("-") ? "-" : "";
  const point = dice.upTo(digits.length - 1) + 1;
  const source = dice.of([
    `${plain}.0`,
    `${plain}.${"0".repeat(1 + dice.upTo(30))}`,
    `${plain}e0`,
    `${plain}E+0`,
    ...(id === 0n ? [] : [`${plain}0e-1`]),
    `${sign}${digits.slice(0, point)}.${digits.slice(point)}0e${digits.length - point}`,
  ]);
  return { source, meaning };
}

/** Any int64, and now and then one that no longer is; the ends of what is exact more often than chance would. */
function makeId(dice: Dice): bigint {
  const end = dice.of([0n, SAFE, -SAFE, INT64_MAX, INT64_MIN, 2n ** 31n, 10n ** 18n, 10n ** 19n]);
  if (dice.chance(0.15)) return end + BigInt(dice.upTo(7)) - 3n;
  const wide = (BigInt(dice.upTo(2 ** 32)) << 32n) + BigInt(dice.upTo(2 ** 32)) - 2n ** 63n;
  return dice.chance(0.5) ? wide : wide / 2n ** BigInt(11 + dice.upTo(30));
}

const CHARACTERS = [
  "a",
  "Z",
  " ",
  "'",
  "/",
  "\u007f",
  "é",
  "e\u0301",
  "€",
  "🌱",
  "\uFEFF",
  "\u2028",
  "\uFFFF",
  "\u{10FFFF}",
  "{",
  ":",
  ",",
] as const;
const ESCAPES = {
  '\\"': '"',
  "\\\\": "\\",
  "\\/": "/",
  "\\n": "\n",
  "\\u00e9": "é",
  "\\uD83C\\uDF31": "🌱",
  "\\u0001": "\u0001",
} as const;
const UNSTORABLE = ["\\u0000", "\\ud800", "\\udfff", "\\uDF31\\uD83C", "\\ud83cx"] as const;

function makeText(dice: Dice): Written<string> {
  if (dice.chance(0.04)) return { source: dice.of(["null", "1", "true", "[]", '["x"]', "{}"]), meaning: undefined };
  const parts = dice.times(dice.chance(0.02) ? 5_000 : 12, () => {
    if (dice.chance(0.8)) return [dice.of(CHARACTERS)];
    return dice.of(Object.entries(ESCAPES) as [[string, string]]);
  });
  const source = parts.map(([written]) => written).join("");
  const meaning = parts.map(([written, means = written]) => means).join("");
  if (dice.chance(0.02)) return { source: `"${source}${dice.of(UNSTORABLE)}"`, meaning: undefined };
  return { source: `"${source}"`, meaning };
}

/** RFC 9112, section 7.1, with chunks of any size, extensions and trailers. */
function chunked(bytes: Buffer, dice: Dice): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const size = 1 + dice.upTo(dice.chance(0.2) ? 8 : bytes.length);
    const chunk = bytes.subarray(at, at + size);
    const head = dice.chance(0.5) ? chunk.length.toString(16) : chunk.length.toString(16).toUpperCase();
    parts.push(Buffer.from(`${head}\r\n`), chunk, Buffer.from("\r\n"));
    at += size;
  }
  return Buffer.concat([...parts, Buffer.from("0\r\n\r\n")]);
}

/**
 * HTTP that is damaged before its body: bytes changed, put in, left out, twice, or cut off. What a 200 to it would store
 * is still known.
 */
function damaged({ bytes, plant }: FuzzCase, dice: Dice): FuzzCase {
  const headEnd = bytes.indexOf("\r\n\r\n");
  const at = dice.upTo(headEnd + 4);
  const [before, after] = [bytes.subarray(0, at), bytes.subarray(at)];
  const garbage = Buffer.from(dice.times(8, () => dice.upTo(256)));
  const hurt = dice.of([
    () => [before, garbage, after],
    () => [before, garbage, after.subarray(garbage.length)],
    () => [before, after.subarray(1 + dice.upTo(8))],
    () => [before, before.subarray(-dice.upTo(40)), after],
    () => [before],
    () => [garbage, garbage, garbage],
    () => [
      before,
      Buffer.from(dice.of(["\r\n", "\n", "\0", ":", " ", "Content-Length: 5\r\n", "\r\nTransfer-Encoding: x\r\n"])),
      after,
    ],
  ])();
  return { bytes: Buffer.concat(hurt), expected: "any", plant };
}
