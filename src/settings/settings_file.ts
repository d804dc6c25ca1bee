import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from "node:fs";

import { ConfigError, isSystemError, reasonOf } from "../errors.ts";
import { suggestion } from "./ignored_variables.ts";
import type { Environment } from "./setting.ts";
import { VARIABLES } from "./settings.ts";

/**
 * Reads a file of settings: lines of `NAME=value`, empty lines, and comments that begin with `#`. The
 * rules for a value are those of an environment variable.
 *
 * @param name The file's name in messages, such as `--settings`.
 * @throws {ConfigError} If it is not a regular file, this user cannot read it, another user may
 *   write to it, or a line is not a setting. The message quotes no value.
 */
export function readSettingsFile(name: string, path: string): Environment {
  const text = readProtected(name, path);
  const lines = text.replace(/^\ufeff/, "").split("\n");

  const settings = lines.flatMap((line, index): [string, string][] => {
    const content = line.trim();
    if (content === "" || content.startsWith("#")) return [];

    const [, variable, value] = /^([A-Z_\d]+)=(.*)$/.exec(content) ?? [];
    const place = `line ${index + 1} of "${path}"`;
    if (variable === undefined || value === undefined)
      throw new ConfigError(`Cannot use ${place}: expected NAME=value`);
    if (!VARIABLES.includes(variable) && !variable.startsWith("OTEL_"))
      throw new ConfigError(
        `Cannot use ${variable} in ${place}: ${suggestion(variable) || "it is not a setting"}`,
      );
    return [[variable, value]];
  });
  return Object.fromEntries(settings);
}

/** The maximum size of a file of settings, in bytes. */
const MAX_BYTES = 2 ** 20;

/** Reads a file that only root and the user of this process may write to. */
function readProtected(name: string, path: string): string {
  try {
    // A pipe without a writer would block.
    const descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const fault = faultOf(fstatSync(descriptor), path);
      if (fault !== undefined) throw new ConfigError(`Cannot use ${name} "${path}": ${fault}`);
      return readFileSync(descriptor, "utf8");
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new ConfigError(`Cannot use ${name} "${path}": ${reasonOf(error)}`);
  }
}

function faultOf(file: Stats, path: string): string | undefined {
  if (!file.isFile()) return "it is not a regular file";
  if (file.size > MAX_BYTES) return `expected at most ${MAX_BYTES} bytes`;
  if (file.uid !== 0 && file.uid !== process.getuid?.())
    return `it belongs to uid ${file.uid}, who could change every setting: chown root ${path}`;
  if ((file.mode & 0o022) !== 0)
    return `other users can write to it, and so change every setting: chmod go-w ${path}`;
  return undefined;
}
