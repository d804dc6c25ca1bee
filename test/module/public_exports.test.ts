import { expect, test } from "bun:test";

import { publicExports } from "./public_exports.ts";

const all = await publicExports();

test("every export of the module has a docstring", () => {
  expect(all.filter(({ docstring }) => docstring === undefined).map(({ name }) => name)).toEqual(
    [],
  );
  expect(all.length).toBeGreaterThan(50);
});

/**
 * A type is shown by the examples of what takes or returns it; the ports that users implement have
 * one of their own.
 */
test("every function, class and constant that the module exports has an example", () => {
  const shown = all.filter(({ examples }) => examples.length > 0).map(({ name }) => name);
  expect(
    all.filter(({ isType, name }) => !isType && !shown.includes(name)).map(({ name }) => name),
  ).toEqual([]);
  expect(shown).toEqual(
    expect.arrayContaining(["Authenticate", "Database", "Observer", "PlantStore", "TokenStore"]),
  );
});

test("every example imports what it is about from the package, and checks something", () => {
  for (const { name, examples } of all) {
    for (const example of examples) {
      expect(example).toMatch(
        new RegExp(`^import .*\\b${name}\\b.* from "plant-store(?:/testing)?";$`, "m"),
      );
      expect(example).toMatch(/\bassert\b|\btest\(/);
    }
  }
});
