import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { emptyNested, isNestedDeeper, mayBeNested } from "../../src/plant/json_depth.ts";

test.each([
  ["", 0, false],
  ['{"id": 1}', 1, false],
  ["[]", 0, true],
  ["[[]]", 1, true],
  ["[[]]", 2, false],
  ['{"a": {"b": [1]}}', 2, true],
  ['{"a": {"b": [1]}}', 3, false],
  ["[[], [], {}, []]", 2, false],
  ['["[[[", "{{{"]', 1, false],
  [String.raw`["\"[[[", "\\", "]]", [[]]]`, 2, true],
  [String.raw`["\"[[[", "\\", "]]", [[]]]`, 3, false],
  ["[".repeat(1_000_000), 999_999, true],
  [`["${"[\\".repeat(1_000_000)}"]`, 1, false],
])("isNestedDeeper() counts levels, and no brackets in strings: case %#", (text, limit, isDeeper) => {
  expect(isNestedDeeper(text, limit)).toBe(isDeeper);
});

test("isNestedDeeper() agrees with the depth of what JSON.parse makes", () => {
  const property = fc.property(fc.json({ maxDepth: 6 }), fc.nat({ max: 8 }), (text, limit) => {
    expect(isNestedDeeper(text, limit)).toBe(depthOf(JSON.parse(text)) > limit);
  });
  fc.assert(property, { numRuns: 1_000 });
});

test.each([
  ["", ""],
  ["1", "1"],
  ['{"id": 1}', '{"id": 1}'],
  ['{"a": [1, {"b": 2}], "c": {"d": [3]}, "id": 4}', '{"a": [], "c": {}, "id": 4}'],
  ["[[1], [[2]], {}]", "[[], [], {}]"],
  ['{"[": "{", "a": ["]", "}"]}', '{"[": "{", "a": []}'],
  [String.raw`{"\\": {"\"}": 1}, "b": "\\"}`, String.raw`{"\\": {}, "b": "\\"}`],
])("emptyNested() empties what is inside the outermost array or object: case %#", (text, emptied) => {
  expect(emptyNested(text)).toBe(emptied);
});

test("emptyNested() changes nothing else, and nothing at all where mayBeNested() says that nothing is nested", () => {
  const property = fc.property(fc.json({ maxDepth: 4 }), (text) => {
    expect(JSON.parse(emptyNested(text))).toEqual(withEmptied(JSON.parse(text)));
    if (!mayBeNested(text)) expect(emptyNested(text)).toBe(text);
  });
  fc.assert(property, { numRuns: 1_000 });
});

function withEmptied(value: unknown): unknown {
  const emptied = (inner: unknown) => (depthOf(inner) === 0 ? inner : Array.isArray(inner) ? [] : {});
  if (Array.isArray(value)) return value.map(emptied);
  if (depthOf(value) === 0) return value;
  return Object.fromEntries(Object.entries(value as object).map(([key, inner]) => [key, emptied(inner)]));
}

function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}
