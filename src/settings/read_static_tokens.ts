import { createReadStream } from "node:fs";
import type { Logger } from "@logtape/logtape";
import { type Config } from "./config.ts";
import { ConfigError, reasonOf } from "../errors.ts";
import { parseTokens } from "./setting_parsers.ts";

/**
 * The tokens of `AUTH_TOKENS` and of the file that `AUTH_TOKENS_FILE` names. Of each that is easy to guess the log has a
 * warning.
 *
 * @throws {ConfigError} If the file cannot be read, or holds what is no token.
 */
export async function readStaticTokens({ authTokens, authTokensFile }: Config, log: Logger): Promise<string[]> {
  const fromFile = authTokensFile === undefined ? [] : await readTokens(authTokensFile);
  warnOfGuessable("AUTH_TOKENS", authTokens, log);
  warnOfGuessable("AUTH_TOKENS_FILE", fromFile, log);
  return [...authTokens, ...fromFile];
}

/** The most that the file may hold, in bytes: what is longer, as `/dev/zero` is, is no list of tokens. */
const MAX_BYTES = 2 ** 20;

async function readTokens(path: string): Promise<string[]> {
  const bytes = await readBytes(path).catch((cause: unknown) => {
    throw cannotUse(path, reasonOf(cause));
  });
  if (bytes.size > MAX_BYTES) throw cannotUse(path, `expected at most ${MAX_BYTES} bytes`);
  return parseTokens("AUTH_TOKENS_FILE", await bytes.text());
}

/** Reads a file, or the limit and one byte of it. */
async function readBytes(path: string): Promise<Blob> {
  const chunks: Buffer<ArrayBuffer>[] = [];
  for await (const chunk of createReadStream(path, { end: MAX_BYTES })) chunks.push(chunk as Buffer<ArrayBuffer>);
  return new Blob(chunks);
}

function cannotUse(path: string, reason: string): ConfigError {
  return new ConfigError(`Cannot use AUTH_TOKENS_FILE "${path}": ${reason}`);
}

/** What a secret needs that is tried over the network (NIST SP 800-63B, section 7.1), in bits. */
const ENOUGH_BITS = 64;

function warnOfGuessable(setting: string, tokens: readonly string[], log: Logger): void {
  tokens.forEach((token, index) => {
    const bits = Math.floor(estimatedBits(token));
    if (bits < ENOUGH_BITS) log.warning("Token is easy to guess", { setting, token: index + 1, bits });
  });
}

/**
 * The entropy of a text whose characters were drawn at random from just those that occur in it, in bits. A random token
 * has about that; a repeated or short word has little, and a long sentence more than it deserves.
 */
function estimatedBits(text: string): number {
  return text.length * Math.log2(new Set(text).size);
}
