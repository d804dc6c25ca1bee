import { type Command, Help } from "commander";
import type { Setting, SettingTable } from "./setting_table.ts";

/** The columns of `--help`, as Commander has them where there is no terminal. */
const WIDTH = 80;
const INDENT = 6;

/** Adds the flags of a table's settings to a command. */
export function addFlags(command: Command, table: SettingTable): void {
  for (const setting of Object.values(table)) {
    const meaning = `${sentenceOf(setting)} [${namesOf(setting)}] (default: ${defaultOf(setting)})`;
    if (setting.flag !== undefined) command.option(setting.flag, meaning);
  }
}

/** What `--help` says of the settings that have no flag. */
export function environmentHelp(table: SettingTable): string {
  const settings = Object.values(table).filter(({ flag }) => flag === undefined);
  return `Environment:\n${settings.map(variableHelp).join("\n")}`;
}

function variableHelp(setting: Setting<unknown>): string {
  const meaning = new Help().boxWrap(`${sentenceOf(setting)} (default: ${defaultOf(setting)})`, WIDTH - INDENT);
  return `  ${namesOf(setting)}\n${meaning.replace(/^/gm, " ".repeat(INDENT))}`;
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
