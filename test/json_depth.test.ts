import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { isNestedDeeper } from "../src/json_depth.ts";

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

function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}
