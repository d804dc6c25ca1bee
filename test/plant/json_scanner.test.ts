import { expect, setDefaultTimeout, test } from "bun:test";

import * as fc from "fast-check";

import { scanJson } from "../../src/plant/json_scanner.ts";
import { PLANT_FIELDS } from "../../src/plant/plant.ts";
import { bodyText } from "../support/json_text.ts";
import { numberText, stringText } from "../support/json_values.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { anyCharacter } from "../support/unicode.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Each text stops being JSON at the mark. */
test.each([
  "|",
  " |",
  "|x",
  "|'id'",
  "{|",
  "{|,}",
  "{|id: 1}",
  '{"id"|',
  '{"id" |1}',
  '{"id":|}',
  '{"id": 1|',
  '{"id": 1,|}',
  '{"id": 1 |"name": "Fern"}',
  '{"id": 1}|}',
  '{"id": 1} |{"id": 2}',
  '{"id": 1|]',
  "[|",
  "[1|}",
  "[1,|]",
  "[1 |2]",
  "[[], {}, [[{}]|",
  "0|1",
  "-|",
  "-|x",
  "|+1",
  "|.5",
  "1.|",
  "1.|x",
  "1e|",
  "1e+|",
  "1E-|x",
  "0|x10",
  "1|n",
  "t|",
  "tru|",
  "tru|x",
  "null|s",
  "|None",
  '"|',
  '"Fern|',
  '"Fe|\nrn"',
  '"Fe|\u0000rn"',
  '"\\|',
  '"\\|x41"',
  '"\\u00|',
  '"\\u00|"',
  '"\\u00|g0"',
  '"\\u00|G0"',
  '"\\u004|\u0011"',
  '"\\u004|\u0130"',
  "|\u00A01",
  "1|\u2028",
  '{"id": 1} |// mine',
])("scanJson() finds where a text stops being JSON: %j", (marked) => {
  const offset = marked.indexOf("|");
  expect(syntaxErrorOffset(marked.replace("|", ""))).toBe(offset);
});

const anyText = fc.oneof(
  bodyText,
  numberText,
  stringText,
  fc.json({ maxDepth: 4 }),
  // JSON with a piece cut out, or with one more character in it.
  fc
    .tuple(
      fc.json({ maxDepth: 3 }),
      fc.nat(),
      fc.nat({ max: 2 }),
      fc.string({ unit: anyCharacter, maxLength: 1 }),
    )
    .map(
      ([text, at, length, piece]) =>
        text.slice(0, at % text.length) + piece + text.slice((at % text.length) + length),
    ),
  fc.string({
    unit: fc.constantFrom(...'[]{}:,"\\ue01-+.eE \n\ttruefalsn\u0000\u00A0é'),
    maxLength: 12,
  }),
);

test("scanJson() takes what JSON.parse takes, and finds the same members", () => {
  const property = fc.property(anyText, (text) => {
    const scan = scanJson(text, { maxDepth: Infinity, names: NAMES });
    expect<unknown>(
      scan.isJson && scan.sources && NAMES.map((_, index) => parsed(scan.sources?.[index])),
    ).toEqual(membersOf(text));
  });
  fc.assert(property, { numRuns: 5_000 });
});

test("scanJson() depends on nothing behind the place that it finds", () => {
  const property = fc.property(anyText, (text) => {
    const offset = syntaxErrorOffset(text);
    if (offset === undefined) return;
    const before = text.slice(0, offset);
    expect(syntaxErrorOffset(before) ?? offset).toBe(offset);
    if (offset < text.length) expect(syntaxErrorOffset(text.slice(0, offset + 1))).toBe(offset);
  });

  fc.assert(property, { numRuns: 2_000 });
});

const LONG = 300_000;

// A search that took quadratic time would not come back from these.
test.each([
  ["digits", "1".repeat(LONG)],
  ["digits of a fraction", `1.${"0".repeat(LONG)}`],
  ["white space", " ".repeat(LONG)],
  ["a string", `"${"x".repeat(LONG)}`],
  ["escapes", `"${"\\\\".repeat(LONG)}`],
  ["elements", `[${"1,".repeat(LONG)}`],
  ["empty arrays", `[${"[],".repeat(LONG)}`],
  ["members", `{${'"a":1,'.repeat(LONG)}`],
])("scanJson() reaches the end of very many %s", (_what, text) => {
  expect(syntaxErrorOffset(text) ?? text.length).toBe(text.length);
  expect(syntaxErrorOffset(`${text}\u0000`)).toBe(text.length);
});

const NAMES = ["id", ...PLANT_FIELDS, "x", "", "__proto__"];

function parsed(source: string | undefined): unknown {
  return source === undefined ? undefined : JSON.parse(source);
}

/**
 * As `JSON.parse` has them: of an object its members, of other JSON nothing, and false if the text
 * is not JSON.
 */
function membersOf(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
    return NAMES.map((name) => Object.getOwnPropertyDescriptor(value, name)?.value);
  } catch {
    return false;
  }
}

function syntaxErrorOffset(text: string): number | undefined {
  const scan = scanJson(text, { maxDepth: Infinity, names: [] });
  return scan.isJson ? undefined : scan.offset;
}

// Levels

test.each([
  ["", 0, undefined],
  ["1", 0, undefined],
  ['{"id": 1}', 1, undefined],
  ["[]", 0, 0],
  ["[[]]", 1, 1],
  ["[[]]", 2, undefined],
  ["[{}]", 1, 1],
  ['{"a": {"b": [1]}}', 2, 12],
  ['{"a": {"b": [1]}}', 3, undefined],
  ["[[], [], {}, []]", 2, undefined],
  ['["[[[", "{{{"]', 1, undefined],
  [String.raw`["\"[[[", "\\", "]]", [[]]]`, 2, 23],
  ["[".repeat(1_000_000), 100, 100],
  ['{"":'.repeat(1_000_000), 100, 400],
  // The first fault counts: what comes behind it is not read.
  ["[1, x, [[[", 2, undefined],
])("scanJson() counts levels, and no brackets in strings: case %#", (text, maxDepth, offset) => {
  const scan = scanJson(text, { maxDepth, names: [] });
  expect(!scan.isJson && scan.isTooDeep ? scan.offset : undefined).toBe(offset);
});

// Members

test.each<[text: string, sources: readonly (string | undefined)[] | undefined]>([
  [" \t\r\n1\n", undefined],
  ["[true,false]", undefined],
  ['"\u007F\u2028🌱"', undefined],
  ['{"": {}, "a": [[], [{}, -0.5e-10]], "b": "\\u00e9\\n\\/", "c": null}', []],
  ["[]", undefined],
  ['[{"id": 1}]', undefined],
  ["{}", []],
  ['{"id": 1, "name": "Fern"}', ["1", '"Fern"']],
  ['\n{ "id"\t:\n1.0e0\r, "name" : [ 1, {"id": 2} ] , "x": 3 }\n', ["1.0e0", '[ 1, {"id": 2} ]']],
  ['{"id": {"id": 1}, "name": {}}', ['{"id": 1}', "{}"]],
  ['{"name": null}', [undefined, "null"]],
  ['{"id": 1, "id": [2], "x": 3}', ["[2]"]],
  [String.raw`{"\u0069d": 1, "n\u0061me": "\u0041"}`, ["1", String.raw`"\u0041"`]],
  ['{"x": "id", "y": {"id": 1}, "": "name"}', []],
])("scanJson(%j) finds the source texts of the members asked for", (text, sources) => {
  const scan = scanJson(text, { maxDepth: 100, names: ["id", "name"] });
  expect(scan.isJson && scan.sources && [...scan.sources]).toEqual(sources as string[]);
});
