/** The result of a scan. */
export type JsonScan =
  | {
      readonly isJson: true;
      /**
       * Of an object: the source text of each member asked for. The last of repeated members
       * counts.
       */
      readonly sources: readonly (string | undefined)[] | undefined;
    }
  | {
      readonly isJson: false;
      /**
       * The first invalid UTF-16 code unit, or the one that nests too deep; the text's length if
       * the text is truncated.
       */
      readonly offset: number;
      readonly isTooDeep: boolean;
    };

/**
 * Scans JSON (RFC 8259) without building its values. A nested value can take much more memory than
 * its text: JavaScriptCore makes an array of a thousand elements for an object whose only key is
 * "999". The scan is one pass: a hostile text costs no more than any other of its length.
 *
 * @example
 * ```ts
 * const options = { maxDepth: 100, names: ["id", "name"] };
 * scanJson('{"id": 1.0, "tags": ["a"]}', options); // { isJson: true, sources: ["1.0", undefined] }
 * scanJson('{"id": 01}', options); // { isJson: false, offset: 8, isTooDeep: false }
 * ```
 */
export function scanJson(text: string, options: JsonScanOptions): JsonScan {
  return new Scanner(text, options).scan();
}

/** Options of {@linkcode scanJson}. */
interface JsonScanOptions {
  /**
   * How deep arrays and objects may be nested (RFC 8259, section 9 allows a limit), and how deep
   * the scan recurses.
   */
  readonly maxDepth: number;
  /** The members of an object to find. */
  readonly names: readonly string[];
}

// Code units as numbers: strings of one character cost ten times as much.
const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;

const WORDS = ["true", "false", "null"];
const SPACES = /[ \n\r\t]*/y;
const UNESCAPED = /[\x20-\x21\x23-\x5b\x5d-\uffff]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y;
const BROKEN_ESCAPE = /(?:\\(?:u[\da-fA-F]{0,3})?)?/y;
/** A number, or the beginning of one, which does not end with a digit. */
const NUMBER = /-?(?:(?:0|[1-9]\d*)(?:\.(?:\d+(?:[eE][+-]?\d*)?)?|[eE][+-]?\d*)?)?/y;

/**
 * A recursive descent parser. A method returns false if the text is invalid, with `at` at that
 * position. The fields are not private with `#`: a scan would take several times as long.
 */
class Scanner {
  readonly text: string;
  readonly options: JsonScanOptions;
  at = 0;
  isTooDeep = false;
  isObject = false;
  readonly sources: (string | undefined)[] = [];

  constructor(text: string, options: JsonScanOptions) {
    this.text = text;
    this.options = options;
  }

  scan(): JsonScan {
    const isJson = this.value(0) && this.end();
    return isJson
      ? { isJson, sources: this.isObject ? this.sources : undefined }
      : { isJson, offset: this.at, isTooDeep: this.isTooDeep };
  }

  end(): boolean {
    this.space();
    return this.at === this.text.length;
  }

  /** @param depth How many arrays and objects contain the value. */
  value(depth: number): boolean {
    this.space();
    const code = this.code();
    return code === OPEN_ARRAY || code === OPEN_OBJECT
      ? this.container(code, depth)
      : this.scalar();
  }

  container(open: typeof OPEN_ARRAY | typeof OPEN_OBJECT, depth: number): boolean {
    this.isTooDeep = depth === this.options.maxDepth;
    if (this.isTooDeep) return false;

    const isObject = open === OPEN_OBJECT;
    if (depth === 0) this.isObject = isObject;

    // In ASCII each closing bracket is two after its opening one.
    const closer = open + 2;
    this.at++;
    if (this.punctuation(closer)) return true;

    do {
      if (!(isObject ? this.member(depth) : this.value(depth + 1))) return false;
    } while (this.punctuation(COMMA));

    return this.punctuation(closer);
  }

  member(depth: number): boolean {
    this.space();
    const nameStart = this.at;
    if (!this.string()) return false;
    const nameEnd = this.at;
    if (!this.punctuation(COLON)) return false;

    this.space();
    const valueStart = this.at;
    if (!this.value(depth + 1)) return false;
    if (depth > 0) return true;

    // Only a name with an escape has to be decoded.
    const raw = this.text.slice(nameStart + 1, nameEnd - 1);
    const name = raw.includes("\\") ? JSON.parse(`"${raw}"`) : raw;
    const index = this.options.names.indexOf(name);
    if (index >= 0) this.sources[index] = this.text.slice(valueStart, this.at);
    return true;
  }

  punctuation(code: number): boolean {
    this.space();
    if (this.code() !== code) return false;
    this.at++;
    return true;
  }

  scalar(): boolean {
    const code = this.code();
    if (code === QUOTE) return this.string();

    for (const word of WORDS) if (word.charCodeAt(0) === code) return this.word(word);
    return this.number();
  }

  word(word: string): boolean {
    for (let index = 0; index < word.length; index++, this.at++) {
      if (this.code() !== word.charCodeAt(index)) return false;
    }
    return true;
  }

  string(): boolean {
    if (this.code() !== QUOTE) return false;
    this.at++;

    do this.match(UNESCAPED);
    while (this.match(ESCAPE));

    if (this.code() !== QUOTE) {
      this.match(BROKEN_ESCAPE);
      return false;
    }
    this.at++;
    return true;
  }

  number(): boolean {
    this.match(NUMBER);
    const last = this.text.charCodeAt(this.at - 1);
    return last >= ZERO && last <= NINE;
  }

  space(): void {
    if (this.code() <= SPACE) this.match(SPACES);
  }

  /** Moves past what a sticky pattern matches; returns false if it does not match here. */
  match(pattern: RegExp): boolean {
    pattern.lastIndex = this.at;
    const isThere = pattern.test(this.text);
    if (isThere) this.at = pattern.lastIndex;
    return isThere;
  }

  code(): number {
    return this.text.charCodeAt(this.at);
  }
}
