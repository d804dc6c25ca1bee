// A parser of JSON that keeps numbers as they are written, made differently from the service's.

/** A JSON number, as it is written. */
export class WrittenNumber {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

export type Json =
  null | boolean | string | WrittenNumber | readonly Json[] | ReadonlyMap<string, Json>;

/** The value of JSON in UTF-8; `undefined` if it is not that. */
export function writtenJson(bytes: Uint8Array): Json | undefined {
  const text = Buffer.from(bytes).toString();
  // What is not UTF-8 was replaced, and does not come back.
  if (!Buffer.from(text).equals(bytes)) return undefined;

  try {
    return parseJson(text.replace(/^\uFEFF/, ""));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

const LEXEME =
  /[ \t\n\r]*([{}[\]:,]|true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|"(?:[^"\\]|\\["\\/bfnrt]|\\u[\da-fA-F]{4})*"|$)/gy;

/** RFC 8259, by the letter. */
function parseJson(text: string): Json {
  // The last one is empty, if there is nothing between the others and the end.
  const lexemes = Array.from(text.matchAll(LEXEME), ([, lexeme = ""]) => lexeme);
  let at = 0;
  let depth = 0;

  function take(expected: string): boolean {
    if (lexemes[at] !== expected) return false;
    at++;
    return true;
  }

  function demand(expected: string): void {
    if (!take(expected)) throw new SyntaxError(`no ${expected}`);
  }

  /** What stands between an opening bracket, which is taken, and its closing one. */
  function list(close: string, item: () => void): void {
    if (++depth > MAX_DEPTH) throw new SyntaxError("nested too deep");
    if (!take(close)) {
      do item();
      while (take(","));
      demand(close);
    }
    depth--;
  }

  function value(): Json {
    const source = lexemes[at++] ?? "";
    if (source.startsWith('"')) return unescaped(source);
    if (/^[-\d]/.test(source)) return new WrittenNumber(source);
    const items: Json[] = [];
    const members = new Map<string, Json>();

    if (source === "[") list("]", () => items.push(value()));
    else if (source === "{") list("}", () => member(members));
    else if (!LITERALS.has(source)) throw new SyntaxError("no value");
    return source === "[" ? items : source === "{" ? members : (LITERALS.get(source) ?? null);
  }

  function member(members: Map<string, Json>): void {
    const key = lexemes[at++] ?? "";
    if (!key.startsWith('"')) throw new SyntaxError("no key");
    demand(":");
    members.set(unescaped(key), value());
  }

  const whole = value();
  demand("");
  return whole;
}

const MAX_DEPTH = 100;

const LITERALS = new Map([
  ["true", true],
  ["false", false],
  ["null", null],
]);

const ESCAPES: Readonly<Record<string, string>> = { b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

function unescaped(literal: string): string {
  const inner = literal.slice(1, -1);
  if (Array.from(inner).some((character) => character < " "))
    throw new SyntaxError("a control character");

  return inner.replace(
    /\\(?:u(.{4})|(.))/g,
    (_, unit: string | undefined, character: string = "") =>
      unit === undefined
        ? (ESCAPES[character] ?? character)
        : String.fromCharCode(Number.parseInt(unit, 16)),
  );
}
