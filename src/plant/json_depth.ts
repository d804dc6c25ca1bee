import { CODE, isOpening } from "./json_syntax.ts";

/**
 * Whether arrays and objects are nested deeper in a text than a parser should follow. RFC 8259, section 9 lets it set
 * such a limit: a level costs a parser as much as a hundred characters do. Brackets in strings do not count. Of a text
 * that is not JSON nothing is promised.
 *
 * @param limit The most levels that are accepted.
 *
 * @example
 * ```ts
 * isNestedDeeper('[["["]]', 2); // false
 * ```
 */
export function isNestedDeeper(text: string, limit: number): boolean {
  // A level is at least a character: most plants are shorter than that.
  return text.length > limit && hasMoreOpenings(text, limit) && hasDeeperLevel(text, limit);
}

/** Whether a text has more opening brackets than that, those in strings counted. */
export function hasMoreOpenings(text: string, limit: number): boolean {
  let openings = 0;
  // A search is much faster than reading each character, and few texts have that many brackets.
  for (const bracket of ["[", "{"]) {
    for (let at = text.indexOf(bracket); at !== -1; at = text.indexOf(bracket, at + 1)) {
      if (++openings > limit) return true;
    }
  }
  return false;
}

function hasDeeperLevel(text: string, limit: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === CODE.quote) at = endOfString(text, at);
    else if (isOpening(code)) depth++;
    else if (isClosing(code)) depth--;
    if (depth > limit) return true;
  }
  return false;
}

/** Whether there may be an array or an object inside the outermost one: a bracket in a string counts, too. */
export function mayBeNested(text: string): boolean {
  return text.includes("[") || text.indexOf("{", 1) !== -1;
}

/**
 * The same JSON, but every array and object inside the outermost one is empty. Who needs only the outermost members does
 * not have to build the others, which can take much more memory than their text: JavaScriptCore makes an array of a
 * thousand elements for an object whose only key is "999".
 *
 * @param text JSON; of other text nothing is promised.
 *
 * @example
 * ```ts
 * emptyNested('{"a": [1, 2], "b": {"c": "]"}}'); // {"a": [], "b": {}}
 * ```
 */
export function emptyNested(text: string): string {
  let [emptied, depth, keptFrom] = ["", 0, 0];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === CODE.quote) at = endOfString(text, at);
    else if (isOpening(code) && ++depth === 2) emptied += text.slice(keptFrom, at + 1);
    else if (isClosing(code) && --depth === 1) keptFrom = at;
  }
  return emptied + text.slice(keptFrom);
}

function isClosing(code: number): boolean {
  return code === CODE.closeArray || code === CODE.closeObject;
}

/** Where its closing quote is, or behind the text. */
function endOfString(text: string, start: number): number {
  let at = start + 1;
  for (let code = text.charCodeAt(at); at < text.length && code !== CODE.quote; code = text.charCodeAt(at)) {
    at += code === CODE.backslash ? 2 : 1;
  }
  return at;
}
