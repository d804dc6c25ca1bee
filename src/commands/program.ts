import { Command, CommanderError, Help, type OutputConfiguration } from "commander";

import { withAbort } from "../async/deadline.ts";
import { version } from "../build/version.ts" with { type: "macro" };
import { adapterOf } from "../database/adapters.ts";
import { DatabaseError } from "../database/database.ts";
import { CommandError, ConfigError } from "../errors.ts";
import { withDatabaseUrlFile } from "../settings/secret_files.ts";
import { type Config, type Environment, type Flags, parseConfig } from "../settings/settings.ts";
import { backup } from "./backup.ts";
import { check } from "./check.ts";
import { DATABASE_FLAG, HELP_WIDTH, type Subcommand } from "./command.ts";
import { exportPlants } from "./export.ts";
import { importPlants } from "./import.ts";
import { licenses } from "./licenses.ts";
import { quoted } from "./messages.ts";
import { migrate } from "./migrate.ts";
import { openapi } from "./openapi.ts";
import { type Io, QuietFailure, writeOutput } from "./process.ts";
import { restore } from "./restore.ts";
import { serve } from "./serve.ts";
import { TOKEN_COMMANDS } from "./token.ts";

/**
 * Runs the program with these arguments (without its own name).
 *
 * @returns The exit code: 0 success, 1 failure, 2 usage error.
 */
export async function run(
  args: readonly string[],
  environment: Environment,
  io: Io,
): Promise<number> {
  let help = "";
  const action: Action = async (subcommand, parsed) => {
    const flags: Flags = parsed.opts();
    const config = () => readConfig(environment, flags, io);
    const adapter = async () => adapterOf((await config()).database);
    await subcommand.run({ io, argument: parsed.args[0] ?? "", flags, config, adapter });
  };

  const program = declareProgram(action, {
    writeOut: (text) => (help += text),
    writeErr: io.stderr,
  });
  const { command, words } = normalizeArguments(program, args);

  try {
    await program.parseAsync(words, { from: "user" }).catch((error) => exceptHelp(error, command));
    if (help !== "") await writeOutput(io, help);
    return 0;
  } catch (error) {
    return toExitCode(error, io);
  }
}

/** Runs a command that Commander has parsed. */
type Action = (subcommand: Subcommand, parsed: Command) => Promise<void>;

/** Declares the program: its commands, their flags and their help. */
export function declareProgram(action: Action, output: OutputConfiguration = {}): Command {
  const program = new Command("plant-store")
    .description("A store of plants: POST /plants over HTTP, kept in SQLite or PostgreSQL.")
    .version(version(), "-V, --version", "Print the version")
    .helpOption("-h, --help", "Print this help")
    .helpCommand("help [command]", "Print the help of a command")
    .addHelpText(
      "after",
      examples("--port 8080", "token create greenhouse --expires 90d", "export > plants.ndjson"),
    )
    .addHelpText("after", "\nExit codes: 0 success, 1 failure, 2 usage error.")
    .addHelpText("after", "Guide: src/commands/README.md, in the source and in the npm package.")
    .configureHelp({
      subcommandTerm(command) {
        if (command.name() === "token") return "token create|list|…";
        return Help.prototype.subcommandTerm(command).replace(" [options]", "");
      },

      formatHelp(command, help) {
        // It has its flags among the settings.
        if (command.name() === "serve") help.visibleOptions = () => [];
        return Help.prototype.formatHelp(command, help);
      },
    })
    .exitOverride()
    .configureOutput({
      ...output,
      outputError: () => {},
      // Commander would ask `process.stdout` and `process.stderr`, which changes their flags.
      getOutHelpWidth: () => HELP_WIDTH,
      getErrHelpWidth: () => HELP_WIDTH,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    });

  // In the order of the help.
  declare(program, [serve], action);

  const token = program
    .command("token")
    .description("Create, list, revoke, delete and prune bearer tokens")
    .helpCommand(false)
    .addHelpText("after", examples("token create greenhouse --expires 90d", "token list"));
  declare(token, TOKEN_COMMANDS, action);

  declare(
    program,
    [exportPlants, importPlants, backup, restore, check, migrate, openapi, licenses],
    action,
  );

  return program;
}

function declare(parent: Command, subcommands: readonly Subcommand[], action: Action): void {
  for (const subcommand of subcommands) {
    const { usage, description, flags = [DATABASE_FLAG], help, example } = subcommand;
    const command = parent.command(usage).description(description);

    for (const [flag, meaning, preset] of flags) command.option(flag, meaning, preset);
    if (help !== undefined) command.addHelpText("after", help);
    command.addHelpText("after", examples(example)).action(() => action(subcommand, command));
  }
}

/** The end of a command's help. */
function examples(...lines: string[]): string {
  const heading = lines.length > 1 ? "Examples" : "Example";
  return `\n${heading}:\n${lines.map((line) => `  plant-store ${line}`).join("\n")}`;
}

async function readConfig(environment: Environment, flags: Flags, { stop }: Io): Promise<Config> {
  if (!environment["DATABASE_URL_FILE"]) return parseConfig(environment, flags);

  // The file may be a pipe without a writer.
  const variables = await withAbort(withDatabaseUrlFile(environment, flags), stop);
  if (variables === undefined) throw new CommandError("Stopped: DATABASE_URL_FILE was not read");
  return parseConfig(variables, flags);
}

/**
 * Finds the command, and puts the arguments into the order that Commander expects:
 *
 * - Without a command the program serves. As Commander's default command, `serve` would run for a
 *   mistyped one.
 * - `help token create` is the same as `token create --help`.
 * - A mistyped command is an error. Commander would print help and exit with 0.
 */
function normalizeArguments(
  program: Command,
  args: readonly string[],
): { command: Command; words: string[] } {
  let command = program;
  let asksForHelp = false;
  let next = 0;

  for (; next < args.length && command.commands.length > 0; next++) {
    const subcommand = command.commands.find((known) => known.name() === args[next]);
    if (args[next] === "help") asksForHelp = true;
    else if (subcommand === undefined) break;
    else command = subcommand;
  }

  const path = args.slice(0, next).filter((word) => word !== "help");
  const rest = args.slice(next);
  const [first = "--"] = rest;
  const isMistyped = command.commands.length > 0 && !first.startsWith("-");

  if (isMistyped) {
    // Drops the words that ask for help: Commander would print help instead of the error.
    const words = rest.filter((word) => !/^(?:-h|--help|help)$/.test(word));
    return { command, words: [...path, ...words] };
  }

  if (asksForHelp) return { command, words: [...path, "--help"] };
  if (command !== program || /^(?:-h|--help|-V|--version)$/.test(first))
    return { command, words: [...args] };

  const serve = program.commands.find((known) => known.name() === "serve") ?? program;
  return { command: serve, words: ["serve", ...args] };
}

/** Help and the version end Commander with an error of code 0. Any other error becomes our own. */
function exceptHelp(error: unknown, command: Command): void {
  if (!(error instanceof CommanderError)) throw error;
  // Without a subcommand there is help, as an error.
  if (error.code === "commander.help") throw error;
  if (error.exitCode !== 0) throw new ConfigError(complaintOf(error, command));
}

/** What people type who are used to other programs. */
const HINTS: ReadonlyMap<string, string> = new Map([
  ["version", "--version"],
  ["start", "serve"],
  ["run", "serve"],
  ["-v", "--version"],
  ["-p", "--port"],
  ["-d", "--database"],
]);

/** Commander's message in one sentence, with advice. */
function complaintOf({ message }: CommanderError, command: Command): string {
  const path = pathOf(command);
  const [, unknown, name = ""] =
    /^error: unknown (command|option) '(.*?)'(?:$|\n)/s.exec(message) ?? [];
  if (unknown !== undefined) {
    const [, similar = HINTS.get(name)] =
      /\(Did you mean (?:one of )?(\S+?)[,?]/.exec(message) ?? [];
    const advice = similar === undefined ? `See ${path} --help` : `Did you mean "${similar}"?`;
    return `Unknown ${unknown} ${quoted(name)}. ${advice}`;
  }

  const [, flag] = /^error: option '(--\w+).*' argument missing/.exec(message) ?? [];
  if (flag !== undefined) return `${flag} needs a value. See ${path} --help`;

  const [, argument] = /^error: missing required argument '(\w+)'/.exec(message) ?? [];
  if (argument !== undefined) return `Missing <${argument}>. See ${path} --help`;

  const extra = command.args[command.registeredArguments.length] ?? "";
  return `Unexpected argument ${quoted(extra)}. See ${path} --help`;
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/**
 * Prints one line for an error that its reader can act on. Any other error is a bug: it prints the
 * stack.
 */
function toExitCode(error: unknown, io: Io): number {
  // Closing the database failed as well: the first error says more.
  if (error instanceof SuppressedError) return toExitCode(error.suppressed, io);
  if (error instanceof QuietFailure) return 1;
  if (error instanceof CommanderError) return 2;

  const isExpected =
    error instanceof ConfigError || error instanceof CommandError || error instanceof DatabaseError;
  io.stderr(`${isExpected ? escapeControls(error.message) : Bun.inspect(error)}\n`);
  return error instanceof ConfigError ? 2 : 1;
}

/**
 * Each control character becomes `\u{…}`: a message may quote what was typed, or the content of a
 * file.
 */
function escapeControls(text: string): string {
  return text.replaceAll(
    /\p{C}/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
