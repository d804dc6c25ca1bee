import { PlantStoreError } from "../errors.ts";
import { type JsonScan, scanJson } from "./json_scanner.ts";
import {
  faultOf,
  type FieldValue,
  INT64_MAX,
  INT64_MIN,
  isRequired,
  type NewPlant,
  PLANT_FIELDS,
  plantOf,
} from "./plant.ts";

/** How deep arrays and objects may be nested; the plant itself is the first level. */
const MAX_DEPTH = 100;

/**
 * Parses a plant. The API and `import` both use it.
 *
 * @param subject The name of the bytes in messages.
 * @throws {PlantStoreError} `malformed_json` if the bytes are not JSON in UTF-8: the message names
 *   the position. `invalid_plant` if they are not a plant: the message names every field at fault.
 *   No message quotes the bytes.
 *
 * @example
 * ```ts
 * parsePlant(new TextEncoder().encode('{"id": 1, "name": "Fern"}')); // { id: 1n, name: "Fern" }
 * ```
 */
export function parsePlant(bytes: Uint8Array, subject: Subject = "the body"): NewPlant {
  if (bytes.length === 0)
    throw new PlantStoreError("malformed_json", `${subject} must not be empty`);

  let text: string;
  try {
    text = UTF8.decode(bytes);
  } catch {
    throw new PlantStoreError("malformed_json", `${subject} must be UTF-8`);
  }

  return checkPlant(parseJson(text, subject), subject);
}

/** Ignores a byte order mark, as RFC 8259, section 8.1 allows and `Request.json` does. */
const UTF8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Parses JSON with an exact `id`. The text is scanned only if it may be nested, is not JSON or has
 * an unusual id.
 */
function parseJson(text: string, subject: Subject): unknown {
  if (looksFlat(text)) {
    try {
      const value = JSON.parse(text) as Record<string, unknown>;
      if (!mayBeInexact(value["id"], text)) return value;
    } catch {
      // Not every runtime's parser says where it failed, and its message quotes the text, which a
      // response must not.
    }
  }

  return scanPlant(text, subject);
}

/**
 * Whether a text looks like an object without nested objects or arrays. Brackets in strings count
 * as nesting. A truncated text goes to the scanner, which refuses it faster than `JSON.parse`.
 */
function looksFlat(text: string): boolean {
  return text.trimEnd().endsWith("}") && text.indexOf("{", 1) === -1 && !text.includes("[");
}

/**
 * Whether an id may have lost digits. Plain digits within 2^53, as in nearly every id, are exact.
 */
function mayBeInexact(id: unknown, text: string): boolean {
  return typeof id === "number" && (!Number.isSafeInteger(id) || FRACTION_OF_ID.test(text));
}

/**
 * Matches a number with a fraction or an exponent that may be the `id`; its `d` may be an escape.
 */
const FRACTION_OF_ID = /(?:d|\\u0064)"\s*:\s*-?\d+[.eE]/;

const MEMBERS = ["id", ...PLANT_FIELDS];

/**
 * Scans a plant without building arrays and objects. Returns its members, or `undefined` if it is
 * not an object.
 */
function scanPlant(text: string, subject: Subject): unknown {
  const scan = scanJson(text, { maxDepth: MAX_DEPTH, names: MEMBERS });
  if (!scan.isJson) throw malformed(text, subject, scan);
  if (scan.sources === undefined) return undefined;

  const [id, ...texts] = scan.sources;
  const members = PLANT_FIELDS.map((field, index) => [field, scalarOf(texts[index])]);
  return { id: idOf(id), ...Object.fromEntries(members) };
}

/**
 * Returns the error for a text that is not JSON: it names the position, and does not quote the
 * text.
 */
function malformed(
  text: string,
  subject: Subject,
  { offset, isTooDeep }: JsonScan & { readonly isJson: false },
): PlantStoreError {
  const breaks = offset === text.length ? "unexpected end at" : "syntax error at";
  const fault = isTooDeep
    ? `must not be nested deeper than ${MAX_DEPTH} levels`
    : `must be valid JSON; ${breaks} ${placeOf(offset, text)}`;
  return new PlantStoreError("malformed_json", `${subject} ${fault}`);
}

/** Parses a member. Returns an empty object for an array or an object. */
function scalarOf(source: string | undefined): unknown {
  if (source === undefined) return undefined;
  return source.startsWith("{") || source.startsWith("[") ? {} : JSON.parse(source);
}

/** An int64 has at most 19 digits and a sign. `BigInt` takes quadratic time for many digits. */
const PLAIN_INTEGER = /^-?\d{1,19}$/;

/**
 * Parses an integer exactly: as a `bigint` if a double would round it. Returns `NaN` for any other
 * number.
 */
function idOf(source: string | undefined): unknown {
  if (source === undefined || !/^[-\d]/.test(source)) return scalarOf(source);
  const rounded = Number(source);
  if (PLAIN_INTEGER.test(source)) return Number.isSafeInteger(rounded) ? rounded : BigInt(source);
  return isWrittenAsInteger(source) ? rounded : Number.NaN;
}

/**
 * Whether a JSON number with a fraction or an exponent is an integer, in exact decimal arithmetic.
 */
function isWrittenAsInteger(source: string): boolean {
  const [, whole = "", fraction = "", exponent = "0"] =
    /^-?(\d+)(?:\.(\d+))?(?:[eE](.+))?$/.exec(source) ?? [];
  const digits = whole + fraction;
  let zeros = 0;
  // A regular expression would take quadratic time.
  while (digits[digits.length - 1 - zeros] === "0") zeros++;
  return zeros === digits.length || zeros + Number(exponent) >= fraction.length;
}

/** Returns line and column as an editor shows them: from 1, in UTF-16 code units. Omits line 1. */
function placeOf(offset: number, text: string): string {
  let line = 1;
  let lineStart = 0;

  for (let at = 0; at < offset; at++) {
    if (text.charCodeAt(at) !== NEWLINE) continue;
    line++;
    lineStart = at + 1;
  }

  const column = `column ${offset - lineStart + 1}`;
  return line === 1 ? column : `line ${line}, ${column}`;
}

const NEWLINE = 0x0a;

/** The name, in messages, of the bytes that a plant is parsed from. */
type Subject = "the body" | "the line";

/** Checks a plant without a schema, because a refusal must be cheap. */
function checkPlant(value: unknown, subject: Subject): NewPlant {
  if (!isObject(value)) {
    throw new PlantStoreError(
      "invalid_plant",
      `${subject} must be a JSON object with ${REQUIRED_MEMBERS}`,
    );
  }

  const { id } = value;
  if (!isInt64(id) || !PLANT_FIELDS.every((field) => faultOf(field, value[field]) === undefined))
    throw invalidPlant(value);
  return plantOf(BigInt(id), (field) => value[field] as FieldValue | undefined);
}

/** `id` and the required fields, as a list in words. */
const REQUIRED_MEMBERS = ["id", ...PLANT_FIELDS.filter(isRequired)]
  .map((member) => `\`${member}\``)
  .join(", ")
  .replace(/, (?=[^,]*$)/, " and ");

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isInt64(value: unknown): value is number | bigint {
  if (typeof value === "number") return Number.isSafeInteger(value);
  return typeof value === "bigint" && value >= INT64_MIN && value <= INT64_MAX;
}

/** Returns the error for JSON that is not a plant: it names every field at fault. */
function invalidPlant(members: Record<string, unknown>): PlantStoreError {
  const { id } = members;
  const faults = [];
  if (id === undefined) faults.push("`id` is missing");
  else if (!isInt64(id)) faults.push(mayBeRounded(id) ? NOT_PLAIN : NOT_INT64);

  for (const field of PLANT_FIELDS) {
    const fault = faultOf(field, members[field]);
    if (fault !== undefined) faults.push(`\`${field}\` ${fault}`);
  }

  return new PlantStoreError("invalid_plant", faults.join("; "));
}

/** Whether a number may be an int64 with a point or an exponent that a double has rounded. */
function mayBeRounded(id: unknown): boolean {
  return typeof id === "number" && Math.abs(id) <= 2 ** 63;
}

// Made once: writing out two bigints costs as much as checking a plant.
const NOT_PLAIN = `\`id\` must be written in plain digits past ${Number.MAX_SAFE_INTEGER}, without a point or an exponent`;
const NOT_INT64 = `\`id\` must be an integer from ${INT64_MIN} to ${INT64_MAX}`;
