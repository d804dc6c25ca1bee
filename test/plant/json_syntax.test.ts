import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { syntaxErrorOffset } from "../../src/plant/json_syntax.ts";
import { bodyText, numberText, stringText } from "../support/json_text.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { anyCharacter } from "../support/unicode.ts";

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
  '"\\u004|\u0011"',
  '"\\u004|\u0130"',
  "|\u00A01",
  "1|\u2028",
  '{"id": 1} |// mine',
])("syntaxErrorOffset() finds where a text stops being JSON: %j", (marked) => {
  const offset = marked.indexOf("|");
  expect(syntaxErrorOffset(marked.replace("|", ""))).toBe(offset);
});

test.each([
  " \t\r\n1\n",
  '{"": {}, "a": [[], [{}, -0.5e-10]], "b": "\\u00e9\\n\\/", "c": null}',
  "[true,false]",
  '"\u007F\u2028🌱"',
])("syntaxErrorOffset() finds nothing in JSON: %j", (text) => {
  expect(syntaxErrorOffset(text)).toBeUndefined();
});

const anyText = fc.oneof(
  bodyText,
  numberText,
  stringText,
  fc.json({ maxDepth: 4 }),
  // JSON with a piece cut out, or with one more character in it.
  fc
    .tuple(fc.json({ maxDepth: 3 }), fc.nat(), fc.nat({ max: 2 }), fc.string({ unit: anyCharacter, maxLength: 1 }))
    .map(
      ([text, at, length, piece]) => text.slice(0, at % text.length) + piece + text.slice((at % text.length) + length),
    ),
  fc.string({ unit: fc.constantFrom(...'[]{}:,"\\ue01-+.eE \n\ttruefalsn\u0000\u00A0é'), maxLength: 12 }),
);

// The time limits of these two are wide, because a busy machine may make many texts for long.
const properties = { timeout: TEST_TIMEOUT_MS };

test(
  "syntaxErrorOffset() finds nothing exactly where JSON.parse does",
  () => {
    const property = fc.property(anyText, (text) => {
      expect(syntaxErrorOffset(text) === undefined).toBe(isJson(text));
    });
    fc.assert(property, { numRuns: 5_000 });
  },
  properties,
);

test(
  "syntaxErrorOffset() depends on nothing behind the place that it finds",
  () => {
    const property = fc.property(anyText, (text) => {
      const offset = syntaxErrorOffset(text);
      if (offset === undefined) return;
      const before = text.slice(0, offset);
      expect(syntaxErrorOffset(before) ?? offset).toBe(offset);
      if (offset < text.length) expect(syntaxErrorOffset(text.slice(0, offset + 1))).toBe(offset);
    });
    fc.assert(property, { numRuns: 2_000 });
  },
  properties,
);

const LONG = 300_000;

// A search that took quadratic time, or one stack frame a level, would not come back from these.
test.each([
  ["brackets", "[".repeat(LONG)],
  ["objects", '{"":'.repeat(LONG)],
  ["brackets that close", `${"[".repeat(LONG)}${"]".repeat(LONG)}`],
  ["digits", "1".repeat(LONG)],
  ["digits of a fraction", `1.${"0".repeat(LONG)}`],
  ["white space", " ".repeat(LONG)],
  ["a string", `"${"x".repeat(LONG)}`],
  ["escapes", `"${"\\\\".repeat(LONG)}`],
  ["elements", `[${"1,".repeat(LONG)}`],
  ["empty arrays", `[${"[],".repeat(LONG)}`],
  ["members", `{${'"a":1,'.repeat(LONG)}`],
])("syntaxErrorOffset() comes to the end of very many %s", (_what, text) => {
  expect(syntaxErrorOffset(text) ?? text.length).toBe(text.length);
  expect(syntaxErrorOffset(`${text}\u0000`)).toBe(text.length);
});

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
