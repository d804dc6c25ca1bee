/**
 * Parses JSON (RFC 8259) like `JSON.parse`, except that the top-level member `id` keeps the integer that was
 * written: a plain run of digits too long for a double becomes a `bigint`, and a number that only rounds to an
 * integer becomes `NaN`, which no schema takes. Everything else is as `JSON.parse` gives it.
 *
 * @throws {SyntaxError} If the text is not JSON.
 *
 * @example
 * ```ts
 * parseExactJson('{"id": 9007199254740993}'); // { id: 9007199254740993n }
 * ```
 */
export function parseExactJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (isRecord(value) && typeof value["id"] === "number" && mayBeInexact(value["id"], text)) {
    value["id"] = exactInteger(lastNumberOf(text, "id"));
  }
  return value;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Plain digits within 2^53 are exact as they are, and nearly every id is that: then the text is not read again. */
function mayBeInexact(id: number, text: string): boolean {
  return !Number.isSafeInteger(id) || /\d[.eE]/.test(text);
}

/** An int64 has at most 19 digits and a sign; `BigInt` of very long runs takes quadratic time. */
const PLAIN_INTEGER = /^-?\d{1,19}$/;

function exactInteger(source: string): bigint | number {
  const rounded = Number(source);
  if (PLAIN_INTEGER.test(source)) return Number.isSafeInteger(rounded) ? rounded : BigInt(source);
  return isWrittenAsInteger(source) ? rounded : Number.NaN;
}

/** Whether a JSON number with a fraction or an exponent is an integer, in exact decimal arithmetic. */
function isWrittenAsInteger(source: string): boolean {
  const [, whole = "", fraction = "", exponent = "0"] = /^-?(\d+)(?:\.(\d+))?(?:[eE](.+))?$/.exec(source) ?? [];
  const digits = whole + fraction;
  const zeros = trailingZeros(digits);
  return zeros === digits.length || zeros + Number(exponent) >= fraction.length;
}

/** Without a pattern: one for zeros at the end starts again at each zero, which takes quadratic time. */
function trailingZeros(digits: string): number {
  let zeros = 0;
  while (zeros < digits.length && digits[digits.length - 1 - zeros] === "0") zeros++;
  return zeros;
}

/**
 * The source text of the last top-level member `key`, a number. The text has passed `JSON.parse`, so this
 * checks nothing: no recursion, one pass, however deep the nesting. (`JSON.parse` with a reviver gives the
 * source too, but overflows the stack some thousand levels deep, and not every runtime has it.)
 */
function lastNumberOf(text: string, key: string): string {
  let depth = 0;
  let source = "";
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === "{" || char === "[") depth++;
    else if (char === "}" || char === "]") depth--;
    else if (char === '"') {
      const end = endOfString(text, at);
      if (depth === 1 && JSON.parse(text.slice(at, end)) === key) source = numberAfterColon(text, end) ?? source;
      at = end - 1;
    }
  }
  return source;
}

function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

/** Only a key is followed by a colon; a string that is a value is not. */
function numberAfterColon(text: string, at: number): string | undefined {
  const pattern = /\s*:\s*(-?\d[\d.eE+-]*)/y;
  pattern.lastIndex = at;
  return pattern.exec(text)?.[1];
}
