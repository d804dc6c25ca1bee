import * as fc from "fast-check";

// JSON as text, not as values: what matters is how things are written. Most of it is valid, some is not.

const digits = (maxLength: number) => fc.string({ unit: fc.constantFrom(..."0123456789"), minLength: 1, maxLength });

/** Where integers change their nature, and their neighbours. */
const BOUNDARIES = [0n, 1n, 10n, 1000n, 2n ** 31n, 2n ** 53n, 10n ** 18n, 2n ** 63n, 2n ** 64n, 10n ** 20n];

const integer = fc
  .tuple(fc.constantFrom(...BOUNDARIES), fc.integer({ min: -3, max: 3 }), fc.boolean())
  .map(([boundary, step, negative]) => (boundary + BigInt(step)) * (negative ? -1n : 1n));

/** An integer with its point moved and its exponent to match, zeros appended: the same number, or nearly. */
const respelled = fc
  .record({
    integer,
    places: fc.nat({ max: 25 }),
    zeros: fc.nat({ max: 3 }),
    e: fc.constantFrom("e", "E"),
    plus: fc.constantFrom("", "+"),
    padding: fc.constantFrom("", "0", "00"),
    error: fc.oneof(
      { weight: 3, arbitrary: fc.constant(0) },
      { weight: 1, arbitrary: fc.integer({ min: -1, max: 1 }) },
    ),
    last: fc.constantFrom("", "", "", "1", "000000000000000000000001", "999999999999999999999999"),
  })
  .map(({ integer, places, zeros, e, plus, padding, error, last }) => {
    const sign = integer < 0n ? "-" : "";
    const shown = `${integer < 0n ? -integer : integer}`.padStart(places + 1, "0");
    const at = shown.length - places;
    const fraction = shown.slice(at) + "0".repeat(zeros) + last;
    const exponent = places + error;
    const power = exponent === 0 ? "" : e + (exponent < 0 ? `-${padding}${-exponent}` : plus + padding + exponent);
    return sign + shown.slice(0, at).replace(/^0+(?=\d)/, "") + (fraction && `.${fraction}`) + power;
  });

const anyNumber = fc
  .record({
    sign: fc.constantFrom("", "-"),
    whole: digits(22).map((text) => text.replace(/^0+(?=\d)/, "")),
    fraction: fc.oneof(
      fc.constant(""),
      digits(25).map((text) => `.${text}`),
    ),
    power: fc.oneof(
      fc.constant(""),
      fc.tuple(fc.constantFrom("e", "E", "e+", "E-", "e-"), digits(3)).map((parts) => parts.join("")),
      fc.constantFrom("e99999999999999999999", "e-99999999999999999999", "e400", "e-400"),
    ),
  })
  .map(({ sign, whole, fraction, power }) => sign + whole + fraction + power);

/** A number in any spelling, near every boundary. */
export const numberText: fc.Arbitrary<string> = fc.oneof(
  integer.map(String),
  respelled,
  respelled,
  anyNumber,
  fc.constantFrom(
    "-0",
    "-0.0",
    "0e9",
    "1.0",
    "1e3",
    "01",
    "+1",
    "1.",
    ".5",
    "0x1",
    "1e",
    "--1",
    "NaN",
    "Infinity",
    "1n",
  ),
);

const hexCase = fc.constantFrom(
  (text: string) => text,
  (text: string) => text.toUpperCase(),
);

const escapedUnit = fc
  .tuple(
    fc.oneof(
      fc.nat({ max: 0xffff }),
      fc.integer({ min: 0xd800, max: 0xdfff }),
      fc.constantFrom(0, 0x22, 0x5c, 0x1f331),
    ),
    hexCase,
  )
  .map(([unit, cased]) => String.raw`\u` + cased((unit & 0xffff).toString(16).padStart(4, "0")));

const rawText = fc.string({ unit: "binary", maxLength: 5 }).map((text) => JSON.stringify(text).slice(1, -1));

const STORABLE_ESCAPES = ['\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t", "\\u0041", "\\uD83C\\udf31"];

/** A string that can be stored, raw or in escapes. */
export const storableText: fc.Arbitrary<string> = fc
  .array(fc.oneof(fc.string({ unit: "grapheme", maxLength: 5 }).map(quotable), fc.constantFrom(...STORABLE_ESCAPES)), {
    maxLength: 4,
  })
  .map((pieces) => `"${pieces.join("")}"`);

/** A string of any kind: escapes of every UTF-16 unit, and now and then what JSON does not take. */
export const stringText: fc.Arbitrary<string> = fc
  .array(
    fc.oneof(
      { weight: 4, arbitrary: rawText },
      { weight: 4, arbitrary: escapedUnit },
      { weight: 2, arbitrary: fc.constantFrom(...STORABLE_ESCAPES) },
      {
        weight: 1,
        arbitrary: fc.constantFrom("\n", "\t", "\u0000", "\u001F", "\\x41", "\\u12", "\\", "\\U0041", "\u007F"),
      },
    ),
    { maxLength: 4 },
  )
  .map((pieces) => `"${pieces.join("")}"`);

function quotable(text: string): string {
  return JSON.stringify(text.replaceAll("\0", "")).slice(1, -1);
}

const space = fc.oneof(
  { weight: 4, arbitrary: fc.constant("") },
  { weight: 1, arbitrary: fc.string({ unit: fc.constantFrom(" ", "\t", "\n", "\r"), maxLength: 3 }) },
);

const KEYS = ["id", "name", "tag", "ID", "Name", "", "i", "__proto__", "constructor", "toString", "ｉd"];

/** A key, some characters of which may be escaped. */
const key: fc.Arbitrary<string> = fc
  .tuple(fc.constantFrom(...KEYS), fc.nat({ max: 7 }))
  .map(([name, bits]) => `"${Array.from(name, (char, i) => ((bits >> i) & 1 ? escaped(char) : char)).join("")}"`);

/** Any value, some levels deep. */
const { value: anyValue } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 2, withCrossShrink: true },
    fc.constantFrom("null", "true", "false", "0.5", '"id"', "1"),
    numberText,
    stringText,
    fc.array(tie("value"), { maxLength: 3 }).map((items) => `[${items.join(", ")}]`),
    fc
      .array(fc.tuple(key, tie("value")), { maxLength: 3 })
      .map((members) => objectText(members.map((m) => m.join(":")))),
  ),
}));

function escaped(char: string): string {
  return String.raw`\u` + char.charCodeAt(0).toString(16).padStart(4, "0");
}

function objectText(members: readonly string[]): string {
  return `{${members.join(",")}}`;
}

function member(name: fc.Arbitrary<string>, value: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc
    .tuple(space, name, space, space, value, space)
    .map(([a, name, b, c, value, d]) => `${a}${name}${b}:${c}${value}${d}`);
}

const named = (name: string) =>
  fc.oneof(
    fc.constant(`"${name}"`),
    key.filter((text) => JSON.parse(text) === name),
  );

/** Few ids and few names, so that plants meet again, under the same id in several spellings. */
const familiarId = fc.constantFrom(
  "1",
  "1.0",
  "10e-1",
  "2",
  "2e0",
  "-0",
  "0",
  "9223372036854775807",
  "9007199254740993",
);
const familiarName = fc.constantFrom('"Fern"', String.raw`"\u0046ern"`, '"Ivy"', '"é"', '"e\u0301"');

const good = {
  id: member(named("id"), familiarId),
  name: member(named("name"), familiarName),
  tag: member(named("tag"), familiarName),
};

/** Members of a plant in any order, some missing, some strange, some twice. */
export const plantText: fc.Arbitrary<string> = fc
  .tuple(
    fc.oneof({ weight: 5, arbitrary: good.id }, { weight: 2, arbitrary: member(named("id"), numberText) }),
    fc.oneof({ weight: 5, arbitrary: good.name }, { weight: 2, arbitrary: member(named("name"), stringText) }),
    fc.oneof({ weight: 3, arbitrary: fc.constant([]) }, { weight: 2, arbitrary: good.tag.map((tag) => [tag]) }),
    fc.oneof(
      { weight: 3, arbitrary: fc.constant([]) },
      { weight: 2, arbitrary: fc.array(member(key, anyValue), { maxLength: 3 }) },
    ),
  )
  .chain(([id, name, tag, others]) => {
    const members = [id, name, ...tag, ...others];
    // One member may go missing.
    return fc.shuffledSubarray(members, { minLength: members.length - 1 });
  })
  .map(objectText);

/** A whole body: mostly a plant, else another value, or a plant with a piece of it replaced. */
export const bodyText: fc.Arbitrary<string> = fc.oneof(
  { weight: 8, arbitrary: plantText },
  { weight: 1, arbitrary: fc.tuple(space, anyValue, space).map((parts) => parts.join("")) },
  { weight: 1, arbitrary: fc.tuple(plantText, fc.nat(), fc.nat({ max: 3 }), piece()).map(spliced) },
);

/** The bytes of a body; now and then some are replaced, or all of them are random. */
export const bodyBytes: fc.Arbitrary<Uint8Array<ArrayBuffer>> = fc.oneof(
  { weight: 10, arbitrary: bodyText.map(encoded) },
  {
    weight: 1,
    arbitrary: fc.tuple(plantText.map(encoded), fc.nat(), fc.uint8Array({ maxLength: 3 })).map(overwritten),
  },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 40 }) },
);

function piece(): fc.Arbitrary<string> {
  return fc.constantFrom("", "", '"', "\\", "{", "}", ",", ":", "0", "-", "e", " ", "\u0000", "\uFEFF", "null", "//");
}

function spliced([text, at, length, piece]: [string, number, number, string]): string {
  const start = at % (text.length + 1);
  return text.slice(0, start) + piece + text.slice(start + length);
}

/** A fresh copy each time: a shrinking value must not remember. */
function overwritten([bytes, at, piece]: [Uint8Array<ArrayBuffer>, number, Uint8Array]): Uint8Array<ArrayBuffer> {
  const copy = bytes.slice();
  piece.forEach((byte, i) => (copy[(at + i) % copy.length] = byte));
  return copy;
}

function encoded(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}
