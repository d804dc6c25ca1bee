import { closeSync, openSync, readSync } from "node:fs";
import { reasonOf, ConfigError } from "../errors.ts";
import { parseDatabaseUrl } from "./setting_parsers.ts";
import type { Environment, Flags } from "./setting_table.ts";

/**
 * The environment, with `DATABASE_URL` as the file has it that `DATABASE_URL_FILE` names: other processes can see an
 * environment, and its password. The flag `--database` replaces both: then no file is read.
 *
 * @throws {ConfigError} If both variables are set, or the file does not hold a usable URL; nothing of it is quoted.
 */
export function withDatabaseUrlFile(environment: Environment, { database: flag }: Flags): Environment {
  const { DATABASE_URL: url, DATABASE_URL_FILE: path } = environment;
  if (!path || flag !== undefined) return environment;
  if (url) throw new ConfigError("Cannot use both DATABASE_URL and DATABASE_URL_FILE");
  return { ...environment, DATABASE_URL: readUrl(path) };
}

/** The most that the file may hold, in bytes: what is longer, as `/dev/zero` is, is no URL. */
const MAX_BYTES = 65_536;

function readUrl(path: string): string {
  const bytes = readBytes(path);
  if (bytes.length > MAX_BYTES) throw cannotUse(path, `expected at most ${MAX_BYTES} bytes`);
  const url = bytes.toString().trimEnd();
  if (url === "") throw cannotUse(path, "it is empty");
  // Anything else may be a password alone.
  if (!/^(?:file|postgres(?:ql)?):[^\p{Cc}]*$/u.test(url)) {
    throw cannotUse(path, "expected one line, file:PATH or postgres://…");
  }
  parseDatabaseUrl("DATABASE_URL_FILE", url);
  return url;
}

/** Reads a file, or the limit and one byte of it. */
function readBytes(path: string): Buffer {
  const bytes = Buffer.alloc(MAX_BYTES + 1);
  let length = 0;
  try {
    const file = openSync(path, "r");
    try {
      for (let read = -1; read !== 0 && length < bytes.length; length += read) {
        read = readSync(file, bytes, length, bytes.length - length, null);
      }
    } finally {
      closeSync(file);
    }
  } catch (cause) {
    throw cannotUse(path, reasonOf(cause));
  }
  return bytes.subarray(0, length);
}

function cannotUse(path: string, reason: string): ConfigError {
  return new ConfigError(`Cannot use DATABASE_URL_FILE "${path}": ${reason}`);
}
