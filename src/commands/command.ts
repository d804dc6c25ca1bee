import { type Command, Help } from "commander";
import { type Config, type Flags, type Setting, SETTINGS } from "../settings/settings.ts";
import type { Io } from "./output.ts";

/** What a command's action gets. */
export interface Call {
  /** The command's argument; empty if it has none. */
  readonly argument: string;
  /** The command's flags, by their names. */
  readonly flags: Flags;
  /**
   * Parses the configuration, with flags overriding environment variables.
   *
   * @throws {ConfigError} If a value cannot be used.
   */
  config(): Promise<Config>;
}

/** What commands are declared with. */
export interface CommandContext {
  readonly io: Io;
  /** Makes Commander's action of what runs the command and resolves to its exit code. */
  readonly action: (run: (call: Call) => Promise<number>) => (...args: unknown[]) => Promise<void>;
}

/** Adds the flag of every command that opens the database. */
export function addDatabaseFlag(command: Command, meaning = sentenceOf(SETTINGS.database)): Command {
  const { DATABASE_URL: preset } = SETTINGS.database.variables;
  const ending = meaning === sentenceOf(SETTINGS.database) ? `[DATABASE_URL] (default: ${preset})` : "[DATABASE_URL]";
  return command.option("--database <url>", `${meaning} ${ending}`);
}

/** The end of a command's help. */
export function examples(...lines: string[]): string {
  return `\nExample${lines.length > 1 ? "s" : ""}:\n${lines.map((line) => `  plant-store ${line}`).join("\n")}`;
}

/** The columns of `--help`, as Commander has them without a terminal. */
const WIDTH = 80;
const INDENT = 6;

/** What `serve --help` says of all settings, by their groups. */
export function settingsHelp(): string {
  const groups = Map.groupBy(Object.values<Setting<unknown>>(SETTINGS), ({ group }) => group);
  return Array.from(groups, ([group, settings]) => `${group}:\n${settings.map(settingHelp).join("\n")}`).join("\n\n");
}

function settingHelp(setting: Setting<unknown>): string {
  const preset = Object.values(setting.variables).filter(Boolean).join(", ");
  const meaning = preset === "" ? sentenceOf(setting) : `${sentenceOf(setting)} (default: ${preset})`;
  const names = setting.flag === undefined ? namesOf(setting) : `${setting.flag}, ${namesOf(setting)}`;
  return `  ${names}\n${new Help().boxWrap(meaning, WIDTH - INDENT).replace(/^/gm, " ".repeat(INDENT))}`;
}

/** The names of a setting's variables. */
export function namesOf({ variables }: Setting<unknown>): string {
  return Object.keys(variables).join(", ");
}

/** A setting's default, as people read it. */
export function defaultOf({ variables }: Setting<unknown>): string {
  const defaults = Object.values(variables);
  return defaults.every((preset) => preset === "") ? "none" : defaults.map((preset) => preset || "none").join(", ");
}

/** The meaning as a sentence in plain text; the README has it in Markdown, in a cell of a table. */
function sentenceOf({ meaning }: Setting<unknown>): string {
  const text = meaning.replaceAll("`", "");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
