/**
 * What versions 1.x only add to, as far as a program can read it. `bun test/program/compatibility.ts` writes
 * it beside this file: a step of a release. A fork that changes it runs that, too.
 */
import { join } from "node:path";

import { declareProgram } from "../../src/commands/program.ts";
import { ERRORS } from "../../src/errors.ts";
import { SETTINGS } from "../../src/settings/settings.ts";
import { table } from "../support/guides.ts";
import { runCommand } from "../support/stream_io.ts";

export const KEPT_FILE = join(import.meta.dir, "compatibility.json");

/** Every command that does something, by its words, such as `token create`. */
export const COMMANDS = declareProgram(async () => {}).commands.flatMap((command) => {
  const isGroup = command.commands.length > 0;
  return (isGroup ? command.commands : [command]).map((leaf) => ({
    command: isGroup ? `${command.name()} ${leaf.name()}` : leaf.name(),
    registeredArguments: leaf.registeredArguments,
    options: leaf.options,
  }));
});

/** What this version has. Tests hold the tables of the guides to the program. */
export async function surface(): Promise<Record<string, unknown>> {
  const { stdout } = await runCommand(["openapi"], {});

  return {
    document: withoutTexts(JSON.parse(stdout)),
    errors: Object.fromEntries(Object.entries(ERRORS).map(([code, { error }]) => [code, error])),
    commands: Object.fromEntries(
      COMMANDS.map(({ command, registeredArguments, options }) => [
        command,
        [
          ...registeredArguments.map((argument) => `<${argument.name()}>`),
          ...options.map(({ flags }) => flags),
        ],
      ]),
    ),
    results: rows("Results for programs"),
    settings: Object.assign({}, ...Object.values(SETTINGS).map(({ variables }) => variables)),
    flags: Object.values(SETTINGS).flatMap(({ flag }) => flag ?? []),
    metrics: table("Metrics").flatMap(([names = ""]) => namesIn(names)),
    exports: rows("What the package exports"),
  };
}

/** The first cells, each with the names in the second cells of all its rows. */
function rows(heading: string): Record<string, string[]> {
  const all: Record<string, string[]> = {};
  for (const [cell = "", names = ""] of table(heading))
    (all[cell.replaceAll("`", "")] ??= []).push(...namesIn(names));
  return all;
}

function namesIn(cell: string): string[] {
  return Array.from(cell.matchAll(/`([^`]+)`/g), ([, name = ""]) => name);
}

/** What a document says to people may change. A property of a schema has a schema, not a text. */
const TEXTS = ["description", "summary", "title"];
const EXAMPLES = ["example", "examples"];

function withoutTexts(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutTexts);
  if (typeof value !== "object" || value === null) return value;
  const members = Object.entries(value).filter(
    ([name, member]) =>
      !EXAMPLES.includes(name) && !(TEXTS.includes(name) && typeof member === "string"),
  );
  return Object.fromEntries(members.map(([name, member]) => [name, withoutTexts(member)]));
}

if (import.meta.main)
  await Bun.write(KEPT_FILE, `${JSON.stringify(await surface(), undefined, 2)}\n`);
