import { Help, Option } from "commander";
import type { DatabaseAdapter } from "../database/adapter.ts";
import { type Config, type Flags, type Setting, SETTINGS } from "../settings/settings.ts";
import type { Io } from "./output.ts";

/** What a command gets. */
export interface Call {
  readonly io: Io;
  /** The argument of the command; empty if it has none. */
  readonly argument: string;
  readonly flags: Flags;
  /**
   * Parses the configuration, with flags overriding environment variables.
   *
   * @throws {ConfigError} If a value cannot be used.
   */
  readonly config: () => Promise<Config>;
  /** The adapter of the database that the configuration names. */
  readonly adapter: () => Promise<DatabaseAdapter>;
}

/** Turns a function that runs a command, and resolves to its exit code, into an action of Commander. */
export type Action = (run: (call: Call) => Promise<number>) => (...given: unknown[]) => Promise<void>;

/** The flag of every command that opens the database. */
export function databaseFlag(): Option {
  const { variables } = SETTINGS.database;
  const meaning = `${sentenceOf(SETTINGS.database)} [DATABASE_URL] (default: ${variables.DATABASE_URL})`;
  return new Option("--database <url>", meaning);
}

/** The end of a command's help. */
export function examples(...lines: string[]): string {
  return `\nExample${lines.length > 1 ? "s" : ""}:\n${lines.map((line) => `  plant-store ${line}`).join("\n")}`;
}

/** The columns of `--help`: Commander's without a terminal. */
const WIDTH = 80;
const INDENT = 6;

/** The help for all settings, by group, in `serve --help`. */
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

/** The meaning as a sentence in plain text. The README has it as Markdown. */
function sentenceOf({ meaning }: Setting<unknown>): string {
  const text = meaning.replaceAll("`", "");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
