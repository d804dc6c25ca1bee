/**
 * Where a text stops being JSON (RFC 8259): the offset of the first UTF-16 code unit that no JSON text can have there, or
 * the text's length where it ends too early. One pass and no recursion: a hostile text costs no more than any other of
 * its length.
 *
 * @returns `undefined` if the text is JSON.
 *
 * @example
 * ```ts
 * syntaxErrorOffset('{"id": 01}'); // 8
 * ```
 */
export function syntaxErrorOffset(text: string): number | undefined {
  /** What will close the arrays and objects that are open. */
  const closers: number[] = [];
  let at = 0;
  do {
    at = endOfBeginning(text, at, closers);
    if (at >= 0) at = endOfClosing(text, at, closers);
  } while (at >= 0 && closers.length > 0);
  if (at < 0) return ~at;
  return at === text.length ? undefined : at;
}

// Each of these functions returns where what it is named after ends; if it is not there as a whole, the complement (~)
// of where it breaks, which is less than zero. Offsets and code units are plain numbers, because objects and strings
// of one character in their place cost ten times as much.

/** JSON's structural characters, as UTF-16 code units. */
export const CODE = {
  quote: 0x22,
  plus: 0x2b,
  comma: 0x2c,
  minus: 0x2d,
  point: 0x2e,
  zero: 0x30,
  nine: 0x39,
  colon: 0x3a,
  openArray: 0x5b,
  backslash: 0x5c,
  closeArray: 0x5d,
  openObject: 0x7b,
  closeObject: 0x7d,
} as const;

/** The beginning of a value: opening brackets, down to a scalar or to a bracket that closes at once. */
function endOfBeginning(text: string, start: number, closers: number[]): number {
  let at = endOfSpace(text, start);
  for (let code = text.charCodeAt(at); isOpening(code); code = text.charCodeAt(at)) {
    const closer = code === CODE.openArray ? CODE.closeArray : CODE.closeObject;
    closers.push(closer);
    at = endOfSpace(text, at + 1);
    if (text.charCodeAt(at) === closer) return at;
    if (closer === CODE.closeObject) at = endOfKey(text, at);
    if (at < 0) return at;
    at = endOfSpace(text, at);
  }
  return endOfScalar(text, at);
}

/** Whether an array or an object begins with this code unit. */
export function isOpening(code: number): boolean {
  return code === CODE.openArray || code === CODE.openObject;
}

/** What follows a value: closing brackets, up to a comma and the key after it, or to the end of the text. */
function endOfClosing(text: string, start: number, closers: number[]): number {
  let at = endOfSpace(text, start);
  while (closers.length > 0) {
    const closer = closers[closers.length - 1];
    const code = text.charCodeAt(at);
    if (code === CODE.comma) return closer === CODE.closeArray ? at + 1 : endOfKey(text, endOfSpace(text, at + 1));
    if (code !== closer) return ~at;
    closers.pop();
    at = endOfSpace(text, at + 1);
  }
  return at;
}

/** A member's name and the colon behind it. */
function endOfKey(text: string, start: number): number {
  const end = endOfString(text, start);
  if (end < 0) return end;
  const at = endOfSpace(text, end);
  return text.charCodeAt(at) === CODE.colon ? at + 1 : ~at;
}

function endOfScalar(text: string, start: number): number {
  switch (text[start]) {
    case '"':
      return endOfString(text, start);
    case "t":
      return endOfWord(text, start, "true");
    case "f":
      return endOfWord(text, start, "false");
    case "n":
      return endOfWord(text, start, "null");
    default:
      return endOfNumber(text, start);
  }
}

function endOfWord(text: string, start: number, word: string): number {
  for (let i = 0; i < word.length; i++) if (text.charCodeAt(start + i) !== word.charCodeAt(i)) return ~(start + i);
  return start + word.length;
}

function endOfString(text: string, start: number): number {
  if (text.charCodeAt(start) !== CODE.quote) return ~start;
  let at = start + 1;
  // Behind the end of the text the code is NaN.
  for (let code = text.charCodeAt(at); code >= 0x20; code = text.charCodeAt(at)) {
    if (code === CODE.quote) return at + 1;
    at = code === CODE.backslash ? endOfEscape(text, at) : at + 1;
    if (at < 0) return at;
  }
  return ~at;
}

function endOfEscape(text: string, start: number): number {
  const at = start + 1;
  switch (text[at]) {
    case "u":
      return endOfHex(text, at + 1, 4);
    case '"':
    case "\\":
    case "/":
    case "b":
    case "f":
    case "n":
    case "r":
    case "t":
      return at + 1;
    default:
      return ~at;
  }
}

function endOfHex(text: string, start: number, digits: number): number {
  for (let at = start; at < start + digits; at++) {
    const code = text.charCodeAt(at);
    if (!isDigit(code) && !(code >= 0x41 && code <= 0x46) && !(code >= 0x61 && code <= 0x66)) return ~at;
  }
  return start + digits;
}

function endOfNumber(text: string, start: number): number {
  let at = text.charCodeAt(start) === CODE.minus ? start + 1 : start;
  at = text.charCodeAt(at) === CODE.zero ? at + 1 : endOfDigits(text, at);
  if (text.charCodeAt(at) === CODE.point) at = endOfDigits(text, at + 1);
  return text[at] === "e" || text[at] === "E" ? endOfExponent(text, at + 1) : at;
}

function endOfExponent(text: string, start: number): number {
  const sign = text.charCodeAt(start);
  return endOfDigits(text, sign === CODE.plus || sign === CODE.minus ? start + 1 : start);
}

/** At least one. */
function endOfDigits(text: string, start: number): number {
  let at = start;
  while (isDigit(text.charCodeAt(at))) at++;
  return at === start ? ~at : at;
}

function isDigit(code: number): boolean {
  return code >= CODE.zero && code <= CODE.nine;
}

function endOfSpace(text: string, start: number): number {
  let at = start;
  while (isSpace(text.charCodeAt(at))) at++;
  return at;
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}
