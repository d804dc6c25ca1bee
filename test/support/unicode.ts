import * as fc from "fast-check";

const SURROGATES = 0x800;
const FIRST_SURROGATE = 0xd800;

/**
 * Any code point but a lone surrogate. Fast-check's own unit "binary" has the same characters. It
 * first makes a table of all million of them, which takes half a second in each file that uses it.
 */
export const anyCharacter: fc.Arbitrary<string> = fc
  .nat({ max: 0x10ffff - SURROGATES })
  .map(
    (index) => String.fromCodePoint(index < FIRST_SURROGATE ? index : index + SURROGATES),
    indexOf,
  );

/**
 * The way back, by which fast-check mixes in strings that it knows to be dangerous, and shrinks
 * them.
 */
function indexOf(character: unknown): number {
  if (typeof character !== "string" || !/^\P{Surrogate}$/u.test(character))
    throw new Error("Not one character");
  const codePoint = character.codePointAt(0) ?? 0;
  return codePoint < FIRST_SURROGATE ? codePoint : codePoint - SURROGATES;
}
