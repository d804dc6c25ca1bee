import { lstatSync } from "node:fs";

import { Command, CommanderError, Help, type OutputConfiguration } from "commander";

import { withAbort } from "../async/timers.ts";
import { version } from "../build/version.ts" with { type: "macro" };
import { DatabaseError } from "../database/database.ts";
import { DATABASE_NAMES } from "../database/databases.ts";
import { CommandError, ConfigError, escapeControls, QuietFailure } from "../errors.ts";
import { ignoredVariables } from "../settings/ignored_variables.ts";
import { withDatabaseUrlFile } from "../settings/secret_files.ts";
import type { Environment } from "../settings/setting.ts";
import { type Config, type Flags, parseConfig } from "../settings/settings.ts";
import { readSettingsFile } from "../settings/settings_file.ts";
import { backup } from "./backup.ts";
import { check } from "./check.ts";
import { DATABASE_FLAGS, HELP_WIDTH, SETTINGS_FLAG, type Subcommand } from "./command.ts";
import { exportPlants } from "./export.ts";
import { importPlants } from "./import.ts";
import { licenses } from "./licenses.ts";
import { migrate } from "./migrate.ts";
import { openapi } from "./openapi.ts";
import { PLANT_COMMANDS } from "./plant.ts";
import { restore } from "./restore.ts";
import { serve } from "./serve.ts";
import { type Io, writeOutput } from "./terminal.ts";
import { TOKEN_COMMANDS } from "./token.ts";

/**
 * Runs the program with these arguments (without its own name).
 *
 * @returns The exit code: 0 success, 1 failure, 2 usage error.
 */
export async function run(
  args: readonly string[],
  environment: Record<string, string | undefined>,
  io: Io,
): Promise<number> {
  const stderr = (text: string) => io.stderr(withoutPasswords(text));
  let help = "";
  const action: Action = async (subcommand, parsed) => {
    const flags: Flags = parsed.opts();
    const { flags: declared = DATABASE_FLAGS } = subcommand;
    const settingsFile = declared.includes(SETTINGS_FLAG)
      ? readSettings(environment, flags, io)
      : undefined;

    // Read once: the file with the database's URL may be a pipe.
    let reading: Promise<Config> | undefined;
    const config = () => (reading ??= readConfig(environment, flags, io));
    const adapter = async () => (await config()).database;
    const ignored = () => ignoredVariables(environment, flags);

    const call = {
      io,
      argument: parsed.args[0] ?? "",
      args: parsed.args,
      flags,
      config,
      settingsFile,
      ignored,
      adapter,
    };
    await subcommand.run(call);
  };

  const program = declareProgram(action, {
    writeOut: (text) => (help += text),
    writeErr: stderr,
    outputError: (text, write) => write(text.split("\n").map(escapeControls).join("\n")),
  });

  try {
    await program.parseAsync(withCommand(args), { from: "user" }).catch(exceptHelp);
    if (help !== "") await writeOutput(io, help);
    return 0;
  } catch (error) {
    return toExitCode(error, stderr);
  }
}

/**
 * Makes `serve` the default command if the arguments begin with a flag. Commander's own default
 * would take a mistyped command for an argument.
 */
function withCommand(args: readonly string[]): readonly string[] {
  const [first = "-"] = args;
  const isOfProgram = /^(?:-h|--help|-V|--version)$/.test(first);
  return first.startsWith("-") && !isOfProgram ? ["serve", ...args] : args;
}

/**
 * Rethrows an error of Commander, except for code 0: Commander throws it after help and the
 * version.
 */
function exceptHelp(error: unknown): void {
  if (!(error instanceof CommanderError) || error.exitCode !== 0) throw error;
}

/** Runs a command that Commander has parsed. */
type Action = (subcommand: Subcommand, parsed: Command) => Promise<void>;

/** Declares the program: its commands, their flags and their help. */
export function declareProgram(action: Action, output: OutputConfiguration = {}): Command {
  const program = new Command("plant-store")
    .description(`A store of plants: POST /plants over HTTP, kept in ${DATABASE_NAMES}.`)
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
        if (command.name() === "plant") return "plant get|delete|count";
        return Help.prototype.subcommandTerm(command).replace(" [options]", "");
      },

      formatHelp(command, help) {
        // The help of `serve` lists flags with the settings: hide them here.
        if (command.name() === "serve")
          help.visibleOptions = () => command.options.filter(({ description }) => description);
        return Help.prototype.formatHelp(command, help);
      },
    })
    .showHelpAfterError("See plant-store --help")
    .exitOverride()
    .configureOutput({
      ...output,
      // Otherwise Commander asks `process.stdout` and `process.stderr`, and using them changes the
      // flags of the open files.
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
    .showHelpAfterError("See plant-store token --help")
    .addHelpText("after", examples("token create greenhouse --expires 90d", "token list"));
  declare(token, TOKEN_COMMANDS, action);

  const plant = program
    .command("plant")
    .description("Print, delete and count plants, even while a server runs")
    .helpCommand(false)
    .showHelpAfterError("See plant-store plant --help")
    .addHelpText("after", examples("plant get 7", "plant delete 7 --yes", "plant count"));
  declare(plant, PLANT_COMMANDS, action);

  declare(
    program,
    [exportPlants, importPlants, backup, restore, check, migrate, openapi, licenses],
    action,
  );

  return program;
}

function declare(parent: Command, subcommands: readonly Subcommand[], action: Action): void {
  for (const subcommand of subcommands) {
    const { usage, description, flags = DATABASE_FLAGS, help, example } = subcommand;
    const command = parent.command(usage).description(description);
    const name = parent.parent === null ? command.name() : `${parent.name()} ${command.name()}`;
    command.showHelpAfterError(`See plant-store ${name} --help`);

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

/**
 * Adds the settings of a file to the environment, whose variables win. OpenTelemetry reads the
 * process's environment by itself, so they are added there.
 *
 * @returns The file, if there is one.
 */
function readSettings(
  environment: Record<string, string | undefined>,
  { settings: named }: Flags,
  { settingsFile: preset }: Io,
): string | undefined {
  const isNamed = typeof named === "string";
  const path = isNamed ? named : preset;
  if (path === undefined || (!isNamed && isMissing(path))) return undefined;

  const settings = readSettingsFile(isNamed ? "--settings" : "the file of settings", path);
  const isSet = (name: string) => environment[name]?.trim();
  const isUrlSet = URL_VARIABLES.some(isSet);
  for (const [name, value] of Object.entries(settings)) {
    const isOverridden = URL_VARIABLES.includes(name) ? isUrlSet : isSet(name);
    if (!isOverridden) environment[name] = value;
  }
  return path;
}

/** Whether a file is missing. One that this user cannot reach may exist. */
function isMissing(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) === undefined;
  } catch {
    return false;
  }
}

/** Alternatives: either one in the environment overrides both in the file. */
const URL_VARIABLES = ["DATABASE_URL", "DATABASE_URL_FILE"];

async function readConfig(environment: Environment, flags: Flags, { stop }: Io): Promise<Config> {
  if (!environment["DATABASE_URL_FILE"]) return parseConfig(environment, flags);

  // The file may be a pipe without a writer.
  const variables = await withAbort(withDatabaseUrlFile(environment, flags), stop);
  if (variables === undefined) throw new CommandError("Stopped: DATABASE_URL_FILE was not read");
  return parseConfig(variables, flags);
}

/**
 * Removes passwords: a user may type the URL of a database where another word is expected. Our own
 * messages have `PASSWORD`.
 */
function withoutPasswords(text: string): string {
  return text.replaceAll(/(:\/\/?[^\s:@/]*:)(?!PASSWORD@)\S*@/g, "$1…@");
}

/**
 * Prints an error, and returns the exit code. An error that the user can act on takes one line. Any
 * other error is a bug, with its stack.
 */
function toExitCode(error: unknown, stderr: Io["stderr"]): number {
  // Closing the database failed as well: the first error says more.
  if (error instanceof SuppressedError) return toExitCode(error.suppressed, stderr);
  if (error instanceof QuietFailure) return 1;
  if (error instanceof CommanderError) return 2;

  const isExpected =
    error instanceof ConfigError || error instanceof CommandError || error instanceof DatabaseError;
  stderr(`${isExpected ? escapeControls(error.message) : Bun.inspect(error)}\n`);
  return error instanceof ConfigError ? 2 : 1;
}
