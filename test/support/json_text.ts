import * as fc from "fast-check";

import {
  type FieldKind,
  INT64_MAX,
  INT64_MIN,
  isRequired,
  kindOf,
  type Plant,
  PLANT_FIELDS,
} from "../../src/plant/plant.ts";
import { fern, membersOf, membersWith, TEXT } from "./plants.ts";
import { anyCharacter } from "./unicode.ts";

// JSON as text, not as values: what matters is how things are written. Most of it is valid, some is
// not.

/** The members of a plant beside its id. */
const FERN = membersOf(fern());

/** One of these, each as often as its weight says. */
export function oneOf<Value>(
  ...weighted: [weight: number, arbitrary: fc.Arbitrary<Value>][]
): fc.Arbitrary<Value> {
  return fc.oneof(...weighted.map(([weight, arbitrary]) => ({ weight, arbitrary })));
}

/** One of the words of a text. */
export function wordOf(words: string): fc.Arbitrary<string> {
  return fc.constantFrom(...words.split(" "));
}

/** Where integers change their nature, and their neighbours. */
const BOUNDARIES = [
  0n,
  1n,
  10n,
  1000n,
  2n ** 31n,
  2n ** 53n,
  10n ** 18n,
  2n ** 63n,
  2n ** 64n,
  10n ** 20n,
];

const integer = fc
  .tuple(fc.constantFrom(...BOUNDARIES), fc.integer({ min: -3, max: 3 }), fc.boolean())
  .map(([boundary, step, negative]) => (boundary + BigInt(step)) * (negative ? -1n : 1n));

/**
 * An integer with its point moved and its exponent to match, zeros appended: the same number, or
 * nearly.
 */
const respelled = fc
  .record({
    integer,
    places: fc.nat({ max: 25 }),
    zeros: fc.nat({ max: 3 }),
    e: fc.constantFrom("e", "E"),
    plus: fc.constantFrom("", "+"),
    padding: fc.constantFrom("", "0", "00"),
    error: mostly(0, fc.integer({ min: -1, max: 1 }), 3),
    last: fc.constantFrom("", "", "", "1", "000000000000000000000001", "999999999999999999999999"),
  })
  .map(({ integer, places, zeros, e, plus, padding, error, last }) => {
    const sign = integer < 0n ? "-" : "";
    const shown = `${integer < 0n ? -integer : integer}`.padStart(places + 1, "0");
    const at = shown.length - places;
    const fraction = shown.slice(at) + "0".repeat(zeros) + last;
    const exponent = places + error;
    const power =
      exponent === 0
        ? ""
        : e + (exponent < 0 ? `-${padding}${-exponent}` : plus + padding + exponent);

    return (
      sign + shown.slice(0, at).replace(/^0+(?=\d)/, "") + (fraction && `.${fraction}`) + power
    );
  });

/** Any int64; most need more digits than a double has. */
const wideInteger = fc.bigInt({ min: INT64_MIN, max: INT64_MAX }).map(String);

const anyNumber = fc.stringMatching(
  /^-?(0|[1-9]\d{0,21})(\.\d{1,25})?([eE][+-]?(\d{1,3}|400|9{20}))?$/,
);

/** A number in any spelling, near every boundary. */
export const numberText: fc.Arbitrary<string> = fc.oneof(
  integer.map(String),
  wideInteger,
  respelled,
  respelled,
  anyNumber,
  wordOf("-0 -0.0 0e9 1.0 1e3 01 +1 1. .5 0x1 1e --1 NaN Infinity 1n"),
);

/** Of any UTF-16 unit, and more often of a surrogate, a NUL, a quotation mark and a backslash. */
const escapedUnit = fc.stringMatching(
  /^\\u([\da-fA-F]{4}|[dD][89a-fA-F][\da-fA-F]{2}|00(00|22|5[cC]))$/,
);

const rawText = fc
  .string({ unit: anyCharacter, maxLength: 5 })
  .map((text) => JSON.stringify(text).slice(1, -1));

/**
 * What is easily altered on its way: composed and decomposed, at the ends of ranges, with a meaning
 * elsewhere.
 */
const storableCharacter = wordOf("' / { : , \u007F é e\u0301 \uFEFF \u2028 \uFFFF \u{10FFFF}");
const storableEscape = wordOf(String.raw`\" \\ \/ \b \f \n \r \t \u0001 \u0041 \uD83C\udf31`);

/** A string that can be stored, raw or in escapes. */
export const storableText: fc.Arbitrary<string> = fc
  .array(
    fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 5 }).map(quotable),
      storableCharacter,
      storableEscape,
    ),
    {
      maxLength: 4,
    },
  )
  .map((pieces) => `"${pieces.join("")}"`);

/** A string that cannot be stored exactly, though JSON takes it. */
const unstorableText = fc
  .tuple(
    storableText,
    fc.constantFrom("\\u0000", "\\ud800", "\\udfff", "\\uDF31\\uD83C", "\\ud83cx"),
  )
  .map(([text, escape]) => `${text.slice(0, -1)}${escape}"`);

/** Longer than what is written to a disk or a socket at once. */
const longText = fc
  .tuple(storableText, fc.constantFrom("x", "🌱", "\\n"), fc.nat({ max: 10_000 }))
  .map(([text, piece, times]) => `${text.slice(0, -1)}${piece.repeat(times)}"`);

/** A string of any kind: escapes of every UTF-16 unit, and now and then what JSON does not take. */
export const stringText: fc.Arbitrary<string> = fc
  .array(
    oneOf(
      [4, rawText],
      [4, escapedUnit],
      [2, storableEscape],
      [
        1,
        fc.constantFrom(
          "\n",
          "\t",
          "\u0000",
          "\u001F",
          "\\x41",
          "\\u12",
          "\\",
          "\\U0041",
          "\u007F",
        ),
      ],
    ),
    { maxLength: 4 },
  )
  .map((pieces) => `"${pieces.join("")}"`);

function quotable(text: string): string {
  return JSON.stringify(text.replaceAll("\0", "")).slice(1, -1);
}

const space = mostly("", fc.stringMatching(/^[ \t\n\r]{0,3}$/), 4);

const KEYS = [
  "id",
  ...PLANT_FIELDS,
  "ID",
  TEXT.toUpperCase(),
  "",
  "i",
  "__proto__",
  "constructor",
  "toString",
  "ｉd",
];

/** A key, some characters of which may be escaped: the bits say which. */
const keyOf = (name: fc.Arbitrary<string>, bits: fc.Arbitrary<number>) =>
  fc.tuple(name, bits).map(([name, bits]) => {
    const escaped = (char: string) =>
      String.raw`\u` + char.charCodeAt(0).toString(16).padStart(4, "0");
    return `"${Array.from(name, (char, i) => ((bits >> i) & 1 ? escaped(char) : char)).join("")}"`;
  });

const key = keyOf(fc.constantFrom(...KEYS), fc.nat({ max: 7 }));

/** Any value, some levels deep. */
const { value: anyValue } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 2, withCrossShrink: true },
    fc.constantFrom("null", "true", "false", "0.5", '"id"', "1", "1e999", String.raw`"{\"id\":3}"`),
    numberText,
    stringText,
    fc.array(tie("value"), { maxLength: 3 }).map((items) => `[${items.join(", ")}]`),
    fc
      .array(fc.tuple(key, tie("value")), { maxLength: 3 })
      .map((members) => objectText(members.map((m) => m.join(":")))),
  ),
}));

function objectText(members: readonly string[]): string {
  return `{${members.join(",")}}`;
}

function member(name: fc.Arbitrary<string>, value: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc
    .tuple(space, name, space, space, value, space)
    .map(([a, name, b, c, value, d]) => `${a}${name}${b}:${c}${value}${d}`);
}

const named = (name: string) => keyOf(fc.constant(name), mostly(0, fc.nat({ max: 7 }), 5));

/** Few ids and few names, so that plants meet again, under the same id in several spellings. */
const familiarId = wordOf("1 1.0 10e-1 2 2e0 -0 0 9223372036854775807 9007199254740993");
const familiarName = fc.constantFrom(
  '"Fern"',
  String.raw`"\u0046ern"`,
  '"Ivy"',
  '"é"',
  '"e\u0301"',
);

const withPlantInside = fc.constantFrom(
  `{"id":7,${FERN}}`,
  '[1,{"id":7}]',
  '[1,{"id":"}"}]',
  '{"x":{"id":9007199254740993}}',
  String.raw`"{\"id\":3}"`,
);

const idMember = member(
  named("id"),
  oneOf([4, familiarId], [18, wideInteger], [2, numberText], [1, anyValue]),
);
const anyText = oneOf(
  [24, familiarName],
  [24, storableText],
  [2, stringText],
  [2, unstorableText],
  [1, anyValue],
  [1, fc.constant("null")],
);

/** The values of a kind, mostly good. */
const VALUES: Readonly<Record<FieldKind, fc.Arbitrary<string>>> = { text: anyText };

const fieldMember = (field: keyof Plant) => member(named(field), VALUES[kindOf(field)]);

/** An optional field, half of the time. */
const memberOrNone = (field: keyof Plant) =>
  isRequired(field) ? fieldMember(field) : fc.option(fieldMember(field), { freq: 1 });

/** Unknown members mostly, some with a plant inside, and now and then a second `id` or field. */
const otherMember = oneOf(
  [1, member(key, anyValue)],
  [
    1,
    member(
      fc.constantFrom('"x"', '"__proto__"', '"ID"', '"id\\u0000"'),
      fc.oneof(withPlantInside, anyValue),
    ),
  ],
  [1, fc.oneof(idMember, ...PLANT_FIELDS.map(fieldMember))],
);

/** Members of a plant in any order, some missing, some strange, some twice. */
const plantText: fc.Arbitrary<string> = fc
  .record({
    plant: fc.tuple(idMember, ...PLANT_FIELDS.map(memberOrNone)),
    others: mostly<string[]>([], fc.array(otherMember, { minLength: 1, maxLength: 3 }), 3),
    missing: mostly(0, fc.constant(1), 15),
  })
  .chain(({ plant, others, missing }) => {
    const members = [...plant, ...others].filter((member) => member !== null);
    return fc.shuffledSubarray(members, { minLength: members.length - missing });
  })
  .map(objectText);

/**
 * As many levels as are good, or one more, or thousands; a parser that recurses may have no stack
 * for them.
 */
const nested = fc
  .record({
    depth: fc.oneof(fc.integer({ min: 99, max: 101 }), fc.nat({ max: 5_000 })),
    isClosed: fc.boolean(),
  })
  .map(({ depth, isClosed }) => "[".repeat(depth) + (isClosed ? "]".repeat(depth) : ""));

/** Nearly JSON, or not at all. */
const brokenText = fc.oneof(
  wordOf("{ } {] nul id=1&name=x"),
  fc.constantFrom("", " ", "\u0000", `{"id":1,${FERN}`, `{"id":1 ${FERN}}`, `{"id":1,${FERN},}`),
  fc.constantFrom("x", "{}", "//").map((more) => `{"id":1,${FERN}}${more}`),
  fc.constantFrom("\u0001", "\\x").map((raw) => `{"id":1,${membersWith(`"${raw}"`)}}`),
  fc.constantFrom(`{id:1,${FERN}}`, `{"id":1,${FERN}}`.replaceAll('"', "'")),
);

/** JSON, but nothing that is a plant, though a plant may be inside of it. */
const otherText = fc.oneof(
  wordOf('[] 1 null true "" {}'),
  fc.constantFrom(`[{"id":1,${FERN}}]`, `{"id":1,"__proto__":{${FERN}}}`),
  wordOf("constructor __proto__").map((name) => `{"${name}":{"id":1,${FERN}}}`),
);

/** What breaks JSON, or changes what it means. */
const piece = oneOf(
  [3, wordOf(String.raw`" \ { } , : 0 - e null //`)],
  [1, fc.constantFrom("", " ", "\u0000", "\uFEFF")],
);

/**
 * A whole body: mostly a plant, else another value, or a plant with a piece of it replaced or its
 * end cut off.
 */
export const bodyText: fc.Arbitrary<string> = oneOf(
  [100, plantText],
  [3, fc.tuple(space, anyValue, space).map((parts) => parts.join(""))],
  [4, fc.tuple(plantText, fc.nat(), fc.nat({ max: 3 }), piece).map(spliced)],
  [2, fc.tuple(plantText, fc.nat()).map(([text, at]) => text.slice(0, at % text.length))],
  [2, brokenText],
  [2, otherText],
  [1, nested],
  [1, fc.tuple(familiarId, nested).map(([id, deep]) => `{"id":${id}.0,"deep":${deep},${FERN}}`)],
  [1, fc.tuple(wideInteger, longText).map(([id, text]) => `{"id":${id},${membersWith(text)}}`)],
);

/** The bytes of a body; now and then some are replaced or put in, or all of them are random. */
export const bodyBytes: fc.Arbitrary<Uint8Array<ArrayBuffer>> = oneOf(
  [60, bodyText.map(encoded)],
  [1, fc.tuple(plantText.map(encoded), fc.nat(), fc.uint8Array({ maxLength: 3 })).map(overwritten)],
  [1, plantText.map(encoded).map(withBadByte)],
  [1, fc.uint8Array({ maxLength: 40 })],
);

/** Mostly the usual value, `weight` times as often as another one. */
export function mostly<Value>(
  usual: Value,
  other: fc.Arbitrary<Value>,
  weight = 15,
): fc.Arbitrary<Value> {
  return oneOf([weight, fc.constant(usual)], [1, other]);
}

function spliced([text, at, length, piece]: [string, number, number, string]): string {
  const start = at % (text.length + 1);
  return text.slice(0, start) + piece + text.slice(start + length);
}

/** A fresh copy each time: a shrinking value must not remember. */
function overwritten([bytes, at, piece]: [
  Uint8Array<ArrayBuffer>,
  number,
  Uint8Array,
]): Uint8Array<ArrayBuffer> {
  const copy = bytes.slice();
  piece.forEach((byte, i) => (copy[(at + i) % copy.length] = byte));
  return copy;
}

function encoded(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

/**
 * A byte that starts nothing in UTF-8, in front of the last quotation mark: whoever is lax about it
 * gets a plant.
 */
function withBadByte(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const at = bytes.lastIndexOf(0x22);
  return new Uint8Array([...bytes.subarray(0, at), 0xff, ...bytes.subarray(at)]);
}
