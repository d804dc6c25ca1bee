import { expect, test } from "bun:test";

import { KEPT_FILE, surface } from "./compatibility.ts";

test("this version has what the last release kept, and may have more", async () => {
  expect(missingIn(await surface(), await Bun.file(KEPT_FILE).json())).toEqual([]);
});

test.each<[what: string, kept: unknown, now: unknown, missing: string[]]>([
  ["a name that is gone", { a: 1, b: 2 }, { a: 1 }, ["b"]],
  ["a value that is another", { a: { b: 1 } }, { a: { b: 2 } }, ["a.b"]],
  ["an entry of a list that is gone", { a: ["x", "y"] }, { a: ["y", "z"] }, ["a: x"]],
  ["a field that became required", { required: ["x"] }, { required: ["x", "y"] }, ["required"]],
  ["what was added", { a: ["x"] }, { a: ["y", "x"], b: 1 }, []],
])("the comparison of two versions: %s", (_what, kept, now, missing) => {
  expect(missingIn(now, kept)).toEqual(missing);
});

/**
 * The places that a later version does not keep. A list may have more, in another order,
 * except for `required`, which breaks the clients that do not send the field.
 */
function missingIn(now: unknown, kept: unknown, place = ""): string[] {
  if (/(?:^|\.)required$/.test(place) && Array.isArray(kept))
    return Bun.deepEquals(now, kept) ? [] : [place];
  if (Array.isArray(kept)) {
    const there = new Set((Array.isArray(now) ? now : []).map((entry) => JSON.stringify(entry)));
    return kept
      .filter((entry) => !there.has(JSON.stringify(entry)))
      .map((entry) => `${place}: ${typeof entry === "string" ? entry : JSON.stringify(entry)}`);
  }

  if (typeof kept !== "object" || kept === null) return now === kept ? [] : [place];
  const members = (typeof now === "object" ? now : null) as Record<string, unknown> | null;
  return Object.entries(kept).flatMap(([name, value]) =>
    missingIn(members?.[name], value, place === "" ? name : `${place}.${name}`),
  );
}
