import { staticTokenFault } from "../auth/token_format.ts";
import type { DatabaseAdapter } from "../database/adapter.ts";
import { adapterOf } from "../database/databases.ts";
import { ConfigError } from "../errors.ts";

// Each parser throws the ConfigError that `refusal()` makes, if the input cannot be used.

/** The text of a variable or a flag, as an operator typed it. */
export interface Input {
  /** Such as `PORT` or `--port`. */
  readonly name: string;
  readonly text: string;
}

/**
 * Returns the error for an input that cannot be used. It quotes the input as typed.
 *
 * @param text The invalid part of the text, without secrets. @default the whole text
 */
export function refusal(input: Input, expected: string, text = input.text): ConfigError {
  const typed = /^[\w.:/+-]+$/.test(text) ? text : `"${text}"`;
  // As it is typed in a shell: PORT=8080, --port 8080.
  const separator = /^[A-Z_]+$/.test(input.name) ? "=" : " ";

  return new ConfigError(`Cannot use ${input.name}${separator}${typed}: ${expected}`);
}

/**
 * Returns a value without surrounding white space.
 *
 * @throws {ConfigError} If the value has quotes, a comment, a placeholder or invisible characters:
 *   Docker's `--env-file` keeps them. The message does not quote the value, which may be a secret.
 */
export function bare({ name, text }: Input): string {
  const value = text.trim();
  const [, advice] = LEFT_IN.find(([pattern]) => pattern.test(value)) ?? [];
  if (advice === undefined) return value;
  throw new ConfigError(`Cannot use ${name}: ${advice}`);
}

/** Text that no value has on purpose, with advice. A single quotation mark counts too. */
const LEFT_IN: readonly (readonly [RegExp, advice: string])[] = [
  [/^["'`]|["'`]$/, "remove the quotes around its value"],
  [/\s#/, "remove the comment after its value"],
  [/\$\{.*\}/s, "replace the `${…}` in its value: nothing has expanded it"],
  // Not the joiners U+200C and U+200D, which Persian names and emoji need.
  [
    /[^\P{Cc}\t\n\r]|[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/u,
    "remove the invisible characters in its value",
  ],
];

/** Parses an address or a name of this machine. A URL has brackets around an IPv6 address (RFC 3986, section 3.2.2). */
export function parseHost(input: Input): string {
  const host = input.text.replace(/^\[(.+)\]$/, "$1");
  if (/^(?:\*|[\w.:%-]+)$/.test(host)) return host;
  throw refusal(input, "expected an IP address or a host name");
}

/** Parses an integer in plain digits. Beyond the default of `max`, a double would round. */
export function parseInteger(input: Input, min: number, max = Number.MAX_SAFE_INTEGER): number {
  const isDigits = /^\d+$/.test(input.text);
  const value = Number(input.text);
  if (isDigits && value >= min && value <= max) return value;

  throw refusal(input, `expected ${isDigits ? "" : "an integer from "}${min} to ${max}`);
}

/** Parses one of several words. */
export function parseChoice<const Choice extends string>(
  input: Input,
  choices: readonly Choice[],
): Choice {
  const chosen = choices.find((known) => known === input.text);
  if (chosen !== undefined) return chosen;
  throw refusal(input, `expected ${choices.join(", ").replace(/, ([^,]*)$/, " or $1")}`);
}

/** Parses `on` or `off`. */
export function parseSwitch(input: Input): boolean {
  return parseChoice(input, ["on", "off"]) === "on";
}

/**
 * Whether all variables of a group are set. They can only be used together.
 *
 * @throws {ConfigError} If only some of the variables are set.
 */
export function isComplete(inputs: readonly Input[]): boolean {
  const { given = [], missing = [] } = Object.groupBy(inputs, ({ text }) =>
    text === "" ? "missing" : "given",
  );
  if (given.length === 0 || missing.length === 0) return missing.length === 0;

  const namesOf = (group: readonly Input[]) => group.map(({ name }) => name).join(" and ");
  throw new ConfigError(`Cannot use ${namesOf(given)} without ${namesOf(missing)}`);
}

/** Parses the URL of a database. */
export function parseDatabaseUrl(input: Input): DatabaseAdapter {
  try {
    return adapterOf(input.text);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw refusal(input, error.message, withoutSecrets(input.text));
  }
}

/** Parses a base URL, such as a trace collector's or the API's: paths are appended to it. */
export function parseBaseUrl(input: Input): URL {
  const isBase = ({ protocol }: URL) => /^https?:$/.test(protocol) && !/[?#]/.test(input.text);
  return parseUrl(
    input,
    isBase,
    "expected an http or https URL without a password, a query and a fragment",
  );
}

/** Parses a URL. Refuses a password, because logs and messages quote the URL. */
export function parseUrl(input: Input, isUsable: (url: URL) => boolean, expected: string): URL {
  const url = URL.parse(input.text);
  if (url !== null && isUsable(url) && url.username === "" && url.password === "") return url;
  throw refusal(input, expected, withoutSecrets(input.text));
}

/**
 * Parses web origins (RFC 6454), separated by commas, as browsers send them: with a scheme, without
 * a path.
 */
export function parseOrigins(input: Input): string[] {
  const origins = wordsOf(input.text, ",");
  const wrong = origins.find(
    (origin) => !/^https?:/.test(origin) || URL.parse(origin)?.origin !== origin,
  );
  if (wrong === undefined) return origins;

  const expected = "expected origins such as https://app.example.org, without a path";
  throw refusal(input, expected, withoutSecrets(wrong));
}

/**
 * Returns refused text for a message. Keeps only the scheme if the text may have a password, which
 * can contain any character. Schemes other than these may be a database's.
 */
export function withoutSecrets(url: string): string {
  const [scheme = ""] = /^[a-z][\w+.-]*:(?:\/\/)?/i.exec(url) ?? [];
  if (url.includes("@") || !/^(?:(?:file|ftp|https?):|$)/i.test(scheme)) return `${scheme}…`;
  return url.replace(/[?#].*/s, "…");
}

/** Parses bearer tokens, separated by commas or newlines. */
export function parseTokens({ name, text }: Input): string[] {
  const tokens = wordsOf(text, /[,\n]/);
  tokens.forEach((token, index) => {
    const fault = staticTokenFault(token);
    if (fault !== undefined)
      throw new ConfigError(`Cannot use ${name}: token ${index + 1} ${fault}`);
  });
  return tokens;
}

/** Splits a text at separators, and trims the words. Returns no words for an empty text. */
export function wordsOf(text: string, separator: string | RegExp): string[] {
  return text
    .split(separator)
    .map((word) => word.trim())
    .filter((word) => word !== "");
}
