import { Help } from "commander";

import type { DatabaseAdapter } from "../database/adapter.ts";
import type { Setting } from "../settings/setting.ts";
import { type Config, type Flags, SETTINGS } from "../settings/settings.ts";
import type { Io } from "./terminal.ts";

/** A command of the program. */
export interface Subcommand {
  /** The name and the arguments, such as `backup <file>`. */
  readonly usage: string;
  readonly description: string;
  /**
   * The flags in the order of the help, each with its meaning and its default.
   *
   * @default {@linkcode DATABASE_FLAGS}
   */
  readonly flags?: readonly (readonly [flag: string, meaning?: string, preset?: string])[];
  /** Returns more help, which follows the flags. @default none */
  readonly help?: () => string;
  /** An example, at the end of the help. */
  readonly example: string;
  /**
   * Runs the command.
   *
   * @throws {ConfigError} On a usage error.
   * @throws {CommandError} If the command failed. A `DatabaseError` means the same, and so does a
   *   `QuietFailure`, which prints nothing.
   */
  readonly run: (call: Call) => Promise<void>;
}

/** A command's context. */
export interface Call {
  readonly io: Io;
  /** The first argument of the command; empty if it has none. */
  readonly argument: string;
  /** All arguments. */
  readonly args: readonly string[];
  readonly flags: Flags;
  /**
   * Parses the configuration, with flags overriding environment variables.
   *
   * @throws {ConfigError} If a value cannot be used.
   */
  readonly config: () => Promise<Config>;
  /** The file of settings that was read. */
  readonly settingsFile: string | undefined;
  /** Returns warnings of overruled or mistyped variables. */
  readonly ignored: () => readonly string[];
  /** The adapter of the database that the configuration names. */
  readonly adapter: () => Promise<DatabaseAdapter>;
}

/** The flag that names a file of settings. */
export const SETTINGS_FLAG = [
  "--settings <file>",
  "Read settings from a file, one NAME=value per line; the environment overrides it",
] as const;

/** The flags of every command that opens the database. */
export const DATABASE_FLAGS = [
  [
    "--database <url>",
    `${sentenceOf(SETTINGS.database)} [DATABASE_URL] (default: ${SETTINGS.database.variables.DATABASE_URL})`,
  ],
  SETTINGS_FLAG,
] as const;

/** The width of `--help`, in columns. */
export const HELP_WIDTH = 80;
const INDENT = 6;

/** Returns the help for all settings, by group, for `serve --help`. */
export function settingsHelp(): string {
  const groups = Map.groupBy(Object.values<Setting<unknown>>(SETTINGS), ({ group }) => group);
  return Array.from(
    groups,
    ([group, settings]) => `\n${group}:\n${settings.map(settingHelp).join("\n")}`,
  ).join("\n");
}

function settingHelp(setting: Setting<unknown>): string {
  const names = [
    ...(setting.flag === undefined ? [] : [setting.flag]),
    ...Object.keys(setting.variables),
  ];
  const preset = Object.values(setting.variables).filter(Boolean).join(", ");
  const meaning =
    preset === "" ? sentenceOf(setting) : `${sentenceOf(setting)} (default: ${preset})`;
  const wrapped = new Help().boxWrap(meaning, HELP_WIDTH - INDENT);

  const heading = new Help().boxWrap(names.join(", "), HELP_WIDTH - 2).replace(/^/gm, "  ");

  return `${heading}\n${wrapped.replace(/^/gm, " ".repeat(INDENT))}`;
}

/** Returns the meaning as a sentence in plain text. The source is Markdown, for the README. */
function sentenceOf({ meaning }: Setting<unknown>): string {
  const text = meaning.replaceAll("`", "");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
