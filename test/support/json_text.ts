import * as fc from "fast-check";

import { isRequired, kindOf, type Plant, PLANT_FIELDS } from "../../src/plant/plant.ts";
import {
  anyValue,
  key,
  keyOf,
  longText,
  mostly,
  numberText,
  objectText,
  oneOf,
  space,
  wideInteger,
  wordOf,
} from "./json_values.ts";
import { TEST_KINDS } from "./kinds.ts";
import { fern, membersOf, membersWith } from "./plants.ts";

// Plants as JSON text, and what is nearly one.

/** The members of a plant beside its id. */
const FERN = membersOf(fern());

function member(name: fc.Arbitrary<string>, value: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc
    .tuple(space, name, space, space, value, space)
    .map(([a, name, b, c, value, d]) => `${a}${name}${b}:${c}${value}${d}`);
}

const named = (name: string) => keyOf(fc.constant(name), mostly(0, fc.nat({ max: 7 }), 5));

/** Few ids, so that plants meet again, under the same id in several spellings. */
const familiarId = wordOf("1 1.0 10e-1 2 2e0 -0 0 9223372036854775807 9007199254740993");

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

const fieldMember = (field: keyof Plant) => member(named(field), TEST_KINDS[kindOf(field)].json);

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
