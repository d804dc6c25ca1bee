import { CODE } from "./json_syntax.ts";

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

/** A search is much faster than reading each character, and few texts have that many brackets. */
function hasMoreOpenings(text: string, limit: number): boolean {
  let openings = 0;
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
    else if (code === CODE.openArray || code === CODE.openObject) depth++;
    else if (code === CODE.closeArray || code === CODE.closeObject) depth--;
    if (depth > limit) return true;
  }
  return false;
}

/** Where its closing quote is, or behind the text. */
function endOfString(text: string, start: number): number {
  let at = start + 1;
  for (let code = text.charCodeAt(at); at < text.length && code !== CODE.quote; code = text.charCodeAt(at)) {
    at += code === CODE.backslash ? 2 : 1;
  }
  return at;
}
