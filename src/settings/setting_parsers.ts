import { staticTokenFault } from "../auth/tokens.ts";
import type { DatabaseLocation } from "../database/open_database.ts";
import { parsePostgresUrl, type PostgresUrl } from "../database/postgres/url.ts";
import { ConfigError } from "../errors.ts";

/** The limits of an integer. */
export interface Range {
  readonly min: number;
  /** @default {Number.MAX_SAFE_INTEGER} */
  readonly max?: number;
}

/** Parses an integer in plain digits. */
export function parseInteger(name: string, text: string, { min, max = Number.MAX_SAFE_INTEGER }: Range): number {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new ConfigError(`Cannot use ${name} "${text}": expected an integer from ${min} to ${max}`);
}

/** Parses a time limit in milliseconds. */
export function parseTimeout(name: string, text: string): number {
  // Timers of the web take 32 bits.
  return parseInteger(name, text, { min: 1, max: 2 ** 31 - 1 });
}

/** Parses one of some words. */
export function parseChoice<const Choice extends string>(
  name: string,
  text: string,
  choices: readonly Choice[],
): Choice {
  const chosen = choices.find((known) => known === text);
  if (chosen !== undefined) return chosen;
  throw new ConfigError(`Cannot use ${name} "${text}": expected ${choices.map((known) => `"${known}"`).join(" or ")}`);
}

/** Parses one or more of a few words, separated by commas. */
export function parseChoices<const Choice extends string>(
  name: string,
  list: string,
  choices: readonly Choice[],
): Choice[] {
  return list.split(",").map((text) => parseChoice(name, text.trim(), choices));
}

/** Parses the name of one scope (RFC 6749, section 3.3). */
export function parseScope(name: string, text: string): string {
  if (/^[!#-[\]-~]+$/.test(text)) return text;
  throw new ConfigError(`Cannot use ${name} "${text}": expected the name of one scope`);
}

/** Parses `on` or `off`. */
export function parseSwitch(name: string, text: string): boolean {
  return parseChoice(name, text, ["on", "off"]) === "on";
}

/**
 * Whether the variables of a group are set, which count together only: all of them, or none.
 *
 * @throws {ConfigError} If some are set and some are not.
 */
export function isComplete(texts: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(texts);
  const given = names.filter((name) => texts[name] !== "");
  if (given.length === 0 || given.length === names.length) return given.length > 0;
  const missing = names.filter((name) => texts[name] === "");
  throw new ConfigError(`Cannot use ${given.join(" and ")} without ${missing.join(" and ")}`);
}

/**
 * Parses `file:PATH`, or the same as an absolute URL, `file:///PATH` (RFC 8089); or a `postgres://…`, of which a secret
 * often has a newline behind it. Around a path, too, white space does not count: bun:sqlite leaves it out.
 */
export function parseDatabaseUrl(name: string, url: string): DatabaseLocation {
  if (/^postgres(?:ql)?:/.test(url)) return { adapter: "postgres", url: parsePostgres(name, url.trimEnd()) };
  const path = /^file:(?:\/\/(?=\/))?([^?#]+)$/.exec(url)?.[1]?.trim();
  // A memory database would lose every plant, and two slashes name a host.
  if (path && !path.startsWith("//") && path !== ":memory:") return { adapter: "sqlite", path };
  throw new ConfigError(`Cannot use ${name} "${withoutSecrets(url)}": expected file:PATH or postgres://…`);
}

function parsePostgres(name: string, url: string): PostgresUrl {
  try {
    return parsePostgresUrl(url);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new ConfigError(`Cannot use ${name} "${withoutSecrets(url)}": ${error.message}`);
  }
}

/** Parses the URL of keys. Plain HTTP is for this machine only: who changes keys on the network can sign tokens. */
export function parseJwksUrl(name: string, text: string): URL {
  const url = URL.parse(text);
  const isSafe = url !== null && (url.protocol === "https:" || (url.protocol === "http:" && isLoopback(url)));
  if (isSafe && !hasPassword(url)) return url;
  throw new ConfigError(`Cannot use ${name} "${withoutSecrets(text)}": expected an https URL without a password`);
}

/** Whether a URL leads to this machine. */
export function isLoopback({ hostname }: URL): boolean {
  return ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
}

/** Parses the URL that paths are appended to: of a collector of traces, or of the API. */
export function parseBaseUrl(name: string, text: string): URL {
  const url = URL.parse(text);
  const isHttp = url !== null && /^https?:$/.test(url.protocol);
  if (isHttp && !/[?#]/.test(text) && !hasPassword(url)) return url;
  throw new ConfigError(
    `Cannot use ${name} "${withoutSecrets(text)}": expected an http or https URL without a password, a query and a fragment`,
  );
}

/** Parses web origins (RFC 6454) that are separated by commas, as browsers send them: with a scheme, without a path. */
export function parseOrigins(name: string, list: string): string[] {
  const origins = list.split(",").map((origin) => origin.trim());
  const wrong = origins.find(
    (origin) => origin !== "" && !(/^https?:/.test(origin) && URL.parse(origin)?.origin === origin),
  );
  if (wrong === undefined) return origins.filter((origin) => origin !== "");
  throw new ConfigError(
    `Cannot use ${name} "${withoutSecrets(wrong)}": expected origins such as https://app.example.org, without a path`,
  );
}

/** A URL gets into logs and messages, so a secret has to come another way. */
function hasPassword({ username, password }: URL): boolean {
  return username !== "" || password !== "";
}

/** A URL that is refused, with no more than its scheme where a password may be: it can contain any character. */
function withoutSecrets(url: string): string {
  const [scheme = ""] = /^[a-z][\w+.-]*:(?:\/\/)?/i.exec(url) ?? [];
  if (url.includes("@") || /^postgres/i.test(scheme)) return `${scheme}…`;
  return url.replace(/[?#].*/s, "…");
}

/** Parses bearer tokens that are separated by commas or the ends of lines. */
export function parseTokens(name: string, list: string): string[] {
  const tokens = list
    .split(/[,\n]/)
    .map((token) => token.trim())
    .filter((token) => token !== "");
  tokens.forEach((token, index) => requireUsable(token, `Cannot use ${name}: token ${index + 1}`));
  return tokens;
}

function requireUsable(token: string, where: string): void {
  const fault = staticTokenFault(token);
  if (fault !== undefined) throw new ConfigError(`${where} ${fault}`);
}
