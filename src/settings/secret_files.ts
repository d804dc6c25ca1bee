import { existsSync } from "node:fs";

import { DATABASE_URLS, URL_SCHEMES } from "../database/databases.ts";
import { ConfigError, reasonOf } from "../errors.ts";
import { bare, parseDatabaseUrl, parseTokens } from "./parsers.ts";
import { type Environment, valueOf } from "./setting.ts";
import type { Config, Flags } from "./settings.ts";

/** The maximum size of a file of secrets, in bytes. */
const MAX_BYTES = 2 ** 20;
/**
 * The timeout of reading a file, in milliseconds. The writer of a pipe may have to fetch the secret
 * first.
 */
const TIMEOUT_MS = 30_000;

/**
 * Reads a file of secrets: a regular file, or a pipe that a program writes the secret to. Blocks no
 * thread, even while the pipe has no writer: for streams, Bun asks the system to report new bytes.
 *
 * @param name The setting that names the file.
 * @throws {ConfigError} If the file cannot be read within 30 seconds, or holds more than a
 *   mebibyte.
 */
export async function readSecretFile(name: string, path: string): Promise<string> {
  const deadline = AbortSignal.timeout(TIMEOUT_MS);
  const chunks: Uint8Array[] = [];
  let length = 0;

  const content = new WritableStream<Uint8Array>({
    write(chunk) {
      chunks.push(chunk);
      length += chunk.length;
      if (length > MAX_BYTES) throw new Error(`expected at most ${MAX_BYTES} bytes`);
    },
  });

  try {
    await Bun.file(path).stream().pipeTo(content, { signal: deadline });
    return Buffer.concat(chunks).toString();
  } catch (cause) {
    const late = `it did not end within ${TIMEOUT_MS / 1_000} seconds`;
    throw cannotUse(name, path, deadline.aborted ? late : reasonOf(cause));
  }
}

/**
 * Returns the error for a file that cannot be used. It quotes only the path of an existing file:
 * any other text may be the secret itself.
 */
function cannotUse(name: string, path: string, reason: string): ConfigError {
  return existsSync(path)
    ? new ConfigError(`Cannot use ${name} "${path}": ${reason}`)
    : new ConfigError(
        `Cannot use ${name}: ${reason}; its value is not shown, because it may be a secret`,
      );
}

/**
 * Returns the environment, with `DATABASE_URL` from the file that `DATABASE_URL_FILE` names: other
 * processes can read an environment, and thus a password. The flag `--database` overrides both, and
 * then no file is read.
 *
 * @throws {ConfigError} If both variables are set, or the file has no usable URL. The message does
 *   not quote the file.
 */
export async function withDatabaseUrlFile(
  environment: Environment,
  { database: flag }: Flags,
): Promise<Environment> {
  const { [URL_FILE]: _, ...others } = environment;
  if (flag !== undefined) return others;
  const path = valueOf(URL_FILE, environment);
  if (path === "") return environment;
  if (valueOf("DATABASE_URL", environment) !== "")
    throw new ConfigError(`Cannot use both DATABASE_URL and ${URL_FILE}`);

  return { ...environment, DATABASE_URL: await readUrlFile(path) };
}

const URL_FILE = "DATABASE_URL_FILE";

/**
 * Reads the URL of a database from the file that `DATABASE_URL_FILE` names.
 *
 * @throws {ConfigError} If the file has no usable URL. The message does not quote the file.
 */
async function readUrlFile(path: string): Promise<string> {
  const text = bare({ name: `the URL in ${URL_FILE}`, text: await readSecretFile(URL_FILE, path) });
  if (text === "") throw cannotUse(URL_FILE, path, "it is empty");
  // Any other text may be a password: do not quote it.
  if (!URL_SCHEMES.some((scheme) => text.startsWith(scheme)) || /\p{Cc}/u.test(text)) {
    throw cannotUse(URL_FILE, path, `expected one line, ${DATABASE_URLS}`);
  }

  // Check it here, so that the message names the file, not the variable.
  parseDatabaseUrl({ name: `the URL in ${URL_FILE}`, text });
  return text;
}

/** Returns a function that rereads the database's URL; `undefined` if the URL is not in a file. */
export function urlReader({ databaseUrlFile: path }: Config): (() => Promise<string>) | undefined {
  return path === undefined ? undefined : () => readUrlFile(path);
}

/**
 * Returns the tokens of `AUTH_TOKENS` and of the file that `AUTH_TOKENS_FILE` names.
 *
 * @throws {ConfigError} If the file cannot be read, or has a token that cannot be used.
 */
export async function readStaticTokens({ authTokens, authTokensFile }: Config): Promise<string[]> {
  const name = "AUTH_TOKENS_FILE";
  const text = authTokensFile === undefined ? "" : await readSecretFile(name, authTokensFile);
  return [...authTokens, ...parseTokens({ name, text })];
}
