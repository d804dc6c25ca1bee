import { type Command, CommanderError } from "commander";
import { DatabaseError } from "../database/database.ts";
import { declareProgram } from "./command_line.ts";
import { withAbort } from "../async/abort.ts";
import { type Config, parseConfig } from "../settings/config.ts";
import { ConfigError, CommandError } from "../errors.ts";
import { withDatabaseUrlFile } from "../settings/secret_files.ts";
import { type Io } from "./output.ts";
import { escapeControls, writeOutput } from "./output.ts";
import type { Environment, Flags } from "../settings/setting_table.ts";

/** The exit codes of the program, beside 0. */
const FAILED = 1;
const CALLED_WRONGLY = 2;

/** The ways to ask for help. */
const HELP = ["-h", "--help", "help"];

/**
 * Runs the program with its arguments (without the program's own name), and resolves to its exit code: 0, 1 (it
 * failed) or 2 (it was called wrongly).
 */
export async function run(args: readonly string[], environment: Environment, io: Io): Promise<number> {
  let exitCode = 0;
  let help = "";
  const program = declareProgram({
    io,
    configOf: (flags) => readConfig(environment, flags, io),
    writeHelp: (text) => (help += text),
    done: (code) => (exitCode = code),
  });
  try {
    await program.parseAsync(normalizeArguments(program, args), { from: "user" }).catch(exceptHelp);
    if (help !== "") await writeOutput(io, help);
    return exitCode;
  } catch (error) {
    return toExitCode(error, io);
  }
}

async function readConfig(environment: Environment, flags: Flags, { stop }: Io): Promise<Config> {
  if (!environment["DATABASE_URL_FILE"]) return parseConfig(environment, flags);
  // The file may be a pipe that nothing is written to.
  const variables = await withAbort(withDatabaseUrlFile(environment, flags), stop);
  if (variables === undefined) throw new CommandError("Stopped: DATABASE_URL_FILE was not read");
  return parseConfig(variables, flags);
}

/** Help and the version end Commander with an error of code 0. */
function exceptHelp(error: unknown): void {
  if (!(error instanceof CommanderError) || error.exitCode !== 0) throw error;
}

/**
 * Without a command the program serves. (As Commander's default command, `serve` would run for a mistyped one.) And for a
 * mistyped command there is no help: Commander would print that of the program, and exit with 0.
 */
function normalizeArguments(program: Command, args: readonly string[]): readonly string[] {
  const [first = "--"] = args;
  if (isMistyped(program, args)) return args.filter((arg) => !HELP.includes(arg));
  return first.startsWith("-") && ![...HELP, "-V", "--version"].includes(first) ? ["serve", ...args] : args;
}

/** Whether a name stands in the place of a subcommand, and is none. */
function isMistyped(command: Command, [name = "-", ...rest]: readonly string[]): boolean {
  if (command.commands.length === 0 || name.startsWith("-")) return false;
  if (name === "help") return isMistyped(command, rest);
  const subcommand = command.commands.find((known) => known.name() === name);
  return subcommand === undefined || isMistyped(subcommand, rest);
}

/** One line for what its reader can act on; anything else is a bug, and comes with its stack. */
function toExitCode(error: unknown, { stderr }: Io): number {
  // Commander has printed its own line.
  if (error instanceof CommanderError) return CALLED_WRONGLY;
  const isExpected = error instanceof ConfigError || error instanceof CommandError || error instanceof DatabaseError;
  // It may quote a value that ends with a newline, as a file of a secret does.
  stderr(`${isExpected ? escapeControls(error.message) : Bun.inspect(error)}\n`);
  return error instanceof ConfigError ? CALLED_WRONGLY : FAILED;
}
