import * as fc from "fast-check";

import { INT64_MAX, INT64_MIN, PLANT_FIELDS } from "../../src/plant/plant.ts";
import { TEXT } from "./plants.ts";
import { anyCharacter } from "./unicode.ts";

// JSON values as text: what matters is how things are written. Most of it is valid, some is not.

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
export const wideInteger = fc.bigInt({ min: INT64_MIN, max: INT64_MAX }).map(String);

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
export const longText = fc
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

export const space = mostly("", fc.stringMatching(/^[ \t\n\r]{0,3}$/), 4);

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
export const keyOf = (name: fc.Arbitrary<string>, bits: fc.Arbitrary<number>) =>
  fc.tuple(name, bits).map(([name, bits]) => {
    const escaped = (char: string) =>
      String.raw`\u` + char.charCodeAt(0).toString(16).padStart(4, "0");
    return `"${Array.from(name, (char, i) => ((bits >> i) & 1 ? escaped(char) : char)).join("")}"`;
  });

export const key = keyOf(fc.constantFrom(...KEYS), fc.nat({ max: 7 }));

/** Any value, some levels deep. */
export const { value: anyValue } = fc.letrec<{ value: string }>((tie) => ({
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

export function objectText(members: readonly string[]): string {
  return `{${members.join(",")}}`;
}

/** Few texts, so that plants meet again, in several spellings. */
const familiarText = fc.constantFrom(
  '"Fern"',
  String.raw`"\u0046ern"`,
  '"Ivy"',
  '"é"',
  '"e\u0301"',
);

/** A text, mostly one that can be stored. */
export const anyText = oneOf(
  [24, familiarText],
  [24, storableText],
  [2, stringText],
  [2, unstorableText],
  [1, anyValue],
  [1, fc.constant("null")],
);

/** Mostly the usual value, `weight` times as often as another one. */
export function mostly<Value>(
  usual: Value,
  other: fc.Arbitrary<Value>,
  weight = 15,
): fc.Arbitrary<Value> {
  return oneOf([weight, fc.constant(usual)], [1, other]);
}
