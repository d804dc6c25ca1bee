import { staticTokenFault } from "../auth/token_format.ts";
import type { DatabaseAdapter } from "../database/adapter.ts";
import { adapterOf } from "../database/databases.ts";
import { ConfigError } from "../errors.ts";

// Each parser throws the ConfigError that `refusal()` makes, if the input cannot be used.

/** A text that an operator typed, and the variable or the flag that it was typed for. */
export interface Input {
  /** Such as `PORT` or `--port`. */
  readonly name: string;
  readonly text: string;
}

/**
 * The error for an input that cannot be used, in the words that were typed.
 *
 * @param text The part of the text that is wrong, without secrets. @default the whole text
 */
export function refusal(input: Input, expected: string, text = input.text): ConfigError {
  const typed = /^[\w.:/+-]+$/.test(text) ? text : `"${text}"`;
  // As it is typed in a shell: PORT=8080, --port 8080.
  const separator = /^[A-Z_]+$/.test(input.name) ? "=" : " ";

  return new ConfigError(`Cannot use ${input.name}${separator}${typed}: ${expected}`);
}

/**
 * A value without the white space around it.
 *
 * @throws {ConfigError} If it has what a shell, a template or a text editor was to take out, and
 *   Docker's `--env-file` leaves in. The message does not quote the value: it may be a secret.
 */
export function bare({ name, text }: Input): string {
  const value = text.trim();
  const [, advice] = LEFT_IN.find(([pattern]) => pattern.test(value)) ?? [];
  if (advice === undefined) return value;
  throw new ConfigError(`Cannot use ${name}: ${advice}`);
}

/** What no value has on purpose, and what to do about it. A half of a pair of quotes, too. */
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

/** Parses an integer in plain digits. A double rounds one beyond the default of `max`. */
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

/** Parses `on` or `off`; `true` and `false` mean the same. */
export function parseSwitch(input: Input): boolean {
  if (/^(?:on|true)$/.test(input.text)) return true;
  if (/^(?:off|false)$/.test(input.text)) return false;
  throw refusal(input, "expected on or off");
}

/**
 * Whether all of a group of variables are set, and not none: they are used together only.
 *
 * @throws {ConfigError} If some are set and some are not.
 */
export function isComplete(inputs: readonly Input[]): boolean {
  const { given = [], missing = [] } = Object.groupBy(inputs, ({ text }) =>
    text === "" ? "missing" : "given",
  );
  if (given.length === 0 || missing.length === 0) return missing.length === 0;

  const namesOf = (group: readonly Input[]) => group.map(({ name }) => name).join(" and ");
  throw new ConfigError(`Cannot use ${namesOf(given)} without ${namesOf(missing)}`);
}

/** Parses where a database is. */
export function parseDatabaseUrl(input: Input): DatabaseAdapter {
  try {
    return adapterOf(input.text);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw refusal(input, error.message, withoutSecrets(input.text));
  }
}

/** Parses a URL that paths are appended to: that of a collector of traces, or of the API. */
export function parseBaseUrl(input: Input): URL {
  const isBase = ({ protocol }: URL) => /^https?:$/.test(protocol) && !/[?#]/.test(input.text);
  return parseUrl(
    input,
    isBase,
    "expected an http or https URL without a password, a query and a fragment",
  );
}

/** Parses a URL without a password: logs and messages have it. */
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
 * What was refused, for a message. It may not be a URL, so only its scheme is left if it may have a
 * password, which can contain any character. Any scheme but these may be that of a database.
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

/** The words between separators, without white space around them; none for an empty text. */
export function wordsOf(text: string, separator: string | RegExp): string[] {
  return text
    .split(separator)
    .map((word) => word.trim())
    .filter((word) => word !== "");
}
