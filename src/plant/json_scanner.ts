/** The result of a scan. */
export type JsonScan =
  | {
      readonly isJson: true;
      /** Of an object: the source text of each member asked for. The last of repeated members counts. */
      readonly sources: readonly (string | undefined)[] | undefined;
    }
  | {
      readonly isJson: false;
      /** The first UTF-16 code unit that is wrong, or opens a level too many; the text's length if it ends too early. */
      readonly offset: number;
      readonly isTooDeep: boolean;
    };

/**
 * Scans JSON (RFC 8259) without building it. A nested value can take much more memory than its text: JavaScriptCore
 * makes an array of a thousand elements for an object whose only key is "999". One pass without recursion: a hostile
 * text costs no more than any other of its length.
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

/** What to look for. */
export interface JsonScanOptions {
  /** How deep arrays and objects may be nested: a parser may set such a limit (RFC 8259, section 9). */
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
const CLOSE_OBJECT = 0x7d;

const SPACES = /[ \n\r\t]*/y;
const UNESCAPED = /[\x20-\x21\x23-\x5b\x5d-\uffff]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y;
const BROKEN_ESCAPE = /(?:\\(?:u[\da-fA-F]{0,3})?)?/y;
/** A number, or the beginning of one, which does not end with a digit. */
const NUMBER = /-?(?:(?:0|[1-9]\d*)(?:\.(?:\d+(?:[eE][+-]?\d*)?)?|[eE][+-]?\d*)?)?/y;

/**
 * Each method reads what it is named after, or returns false with `at` where the text breaks. The fields are not private
 * with `#`: a scan would take several times as long.
 */
class Scanner {
  readonly text: string;
  readonly options: JsonScanOptions;
  at = 0;
  /** The brackets that will close the open arrays and objects. */
  readonly closers: number[] = [];
  isTooDeep = false;
  readonly sources: (string | undefined)[] = [];
  isObject = false;
  /** The index of the current top-level member among those asked for, or -1; and where its value begins. */
  member = -1;
  valueStart = 0;

  constructor(text: string, options: JsonScanOptions) {
    this.text = text;
    this.options = options;
  }

  scan(): JsonScan {
    const isJson = this.document() && this.at === this.text.length;
    return isJson
      ? { isJson, sources: this.isObject ? this.sources : undefined }
      : { isJson, offset: this.at, isTooDeep: this.isTooDeep };
  }

  document(): boolean {
    do {
      if (!this.beginning() || !this.ending()) return false;
    } while (this.closers.length > 0);
    return true;
  }

  /** The beginning of a value: opening brackets, down to a scalar or an empty array or object. */
  beginning(): boolean {
    this.space();
    for (let code = this.code(); code === OPEN_ARRAY || code === OPEN_OBJECT; code = this.code()) {
      this.isTooDeep = this.closers.length === this.options.maxDepth;
      if (this.isTooDeep) return false;
      if (code === OPEN_OBJECT && this.closers.length === 0) this.isObject = true;
      // In ASCII each closing bracket is two after its opening one.
      const closer = code + 2;
      this.closers.push(closer);
      this.at++;
      this.space();
      if (this.code() === closer) return true;
      if (code === OPEN_OBJECT && !this.key()) return false;
    }
    return this.scalar();
  }

  /** The end of a value: closing brackets, up to a comma and the next key, or the end of the text. */
  ending(): boolean {
    const { closers } = this;
    let end = this.at;
    this.space();
    while (closers.length > 0) {
      const closer = closers[closers.length - 1];
      const code = this.code();
      if (code !== COMMA && code !== closer) return false;
      if (closers.length === 1 && this.member >= 0) this.sources[this.member] = this.text.slice(this.valueStart, end);
      this.at++;
      if (code === COMMA) {
        if (closer !== CLOSE_OBJECT) return true;
        this.space();
        return this.key();
      }
      closers.pop();
      end = this.at;
      this.space();
    }
    return true;
  }

  /** The name of a member and the colon, up to its value. */
  key(): boolean {
    const start = this.at;
    if (!this.string()) return false;
    const end = this.at;
    this.space();
    if (this.code() !== COLON) return false;
    this.at++;
    this.space();
    if (this.closers.length === 1) {
      const name = this.text.slice(start + 1, end - 1);
      this.member = this.options.names.indexOf(name.includes("\\") ? JSON.parse(`"${name}"`) : name);
      this.valueStart = this.at;
    }
    return true;
  }

  scalar(): boolean {
    switch (this.text[this.at]) {
      case '"':
        return this.string();
      case "t":
        return this.word("true");
      case "f":
        return this.word("false");
      case "n":
        return this.word("null");
      default:
        return this.number();
    }
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
