import type { Config } from "../settings/config.ts";
import type { Io } from "./output.ts";
import type { Flags } from "../settings/setting_table.ts";
import { SETTINGS } from "../settings/settings.ts";

/** The setting that every command has that works on the database. */
export const DATABASE = { database: SETTINGS.database };

/** What commands run with. */
export interface CommandContext {
  readonly io: Io;
  /** The configuration, with flags in the place of environment variables. */
  readonly configOf: (flags: Flags) => Promise<Config>;
  /** Takes the help and the version. */
  readonly writeHelp: (text: string) => void;
  /** Takes a command's exit code. */
  readonly done: (exitCode: number) => void;
}

/** The end of a command's help. */
export function example(line: string): string {
  return `\nExample:\n  plant-store ${line}`;
}
