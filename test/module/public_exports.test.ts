import { expect, test } from "bun:test";

import { table } from "../support/guides.ts";
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
    expect.arrayContaining(["Authenticate", "Observer", "PlantStore", "TokenStore"]),
  );
});

test("every example imports what it is about from the package, and checks something", () => {
  for (const { name, specifier, examples } of all) {
    for (const example of examples) {
      expect(example).toMatch(new RegExp(`^import .*\\b${name}\\b.* from "${specifier}";$`, "m"));
      expect(example).toMatch(/\bassert\b|\btest\(/);
    }
  }
});

test("the embedding guide lists all that the package exports, and nothing else", () => {
  const listed = table("What the package exports").flatMap(([specifier = "", names = ""]) =>
    Array.from(names.matchAll(/`(\w+)`/g), ([, name]) => `${specifier} ${name}`),
  );
  const exported = all.map(({ specifier, name }) => `\`${specifier}\` ${name}`);
  expect(listed.toSorted()).toEqual(exported.toSorted());
});
