import { Command, Option } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { backup } from "./backup.ts";
import { check } from "./check.ts";
import { type CommandContext, DATABASE, example } from "./command_context.ts";
import { type ExportOptions, exportPlants } from "./export.ts";
import { escapeControls } from "./output.ts";
import { migrate } from "./migrate.ts";
import type { OpenapiOptions } from "./openapi.ts";
import { addFlags, environmentHelp } from "../settings/setting_help.ts";
import type { Flags } from "../settings/setting_table.ts";
import { SETTINGS } from "../settings/settings.ts";
import { declareToken } from "./token_command_line.ts";

/** Where `serve` listens without any settings. */
const DEFAULT_SERVER = `http://${SETTINGS.host.variables.HOST}:${SETTINGS.port.variables.PORT}`;

/** Declares the program: its commands, their flags and their help. */
export function declareProgram(context: CommandContext): Command {
  const program = new Command("plant-store")
    .description("A store of plants: POST /plants over HTTP, kept in SQLite or PostgreSQL.")
    .version(packageJson.version, "-V, --version", "Print the version")
    .helpOption("-h, --help", "Print this help")
    .helpCommand("help [command]", "Print the help of a command")
    .addHelpText("after", `${example("--port 8080")}\n\nExit codes: 0, 1 (it failed), 2 (it was called wrongly).`)
    .exitOverride()
    .configureOutput({
      writeOut: context.writeHelp,
      writeErr: context.io.stderr,
      outputError: (message, write) => write(`${escapeControls(message.trim().replaceAll("\n", " "))} (see --help)\n`),
    });
  declareServe(program, context);
  declareToken(program, context);
  declareExport(program, context);
  declareImport(program, context);
  declareBackup(program, context);
  declareCheck(program, context);
  declareMigrate(program, context);
  declareOpenapi(program, context);
  return program;
}

function declareServe(program: Command, { io, configOf, done }: CommandContext): void {
  const command = program
    .command("serve")
    .description("Serve the API (also what happens with no command)")
    .addHelpText("after", () => `\n${environmentHelp(SETTINGS)}`)
    .addHelpText("after", example("serve --port 8080 --database file:/var/lib/plant-store/plants.db"))
    .action(async (flags: Flags) => done(await (await import("./serve.ts")).serve(await configOf(flags), io)));
  addFlags(command, SETTINGS);
}

function declareExport(program: Command, { io, configOf, done }: CommandContext): void {
  const format = new Option("--format <format>", "How plants are written").choices(["ndjson", "csv"]).default("ndjson");
  const command = program
    .command("export")
    .description("Print every plant, ordered by id, also while a server runs")
    .addOption(format)
    .addHelpText("after", EXPORT_HELP)
    .addHelpText("after", example("export > plants.ndjson"))
    .action(async (flags: Flags & ExportOptions) =>
      done(await exportPlants((await configOf(flags)).database, flags, io)),
    );
  addFlags(command, DATABASE);
}

const EXPORT_HELP = `
Prints every plant that was stored when it began, and perhaps some that came
later; a backup is of one moment. CSV is as exact as JSON, but a spreadsheet
takes a cell that begins with =, +, - or @ for a formula. Import reads JSON.`;

function declareImport(program: Command, { io, configOf, done }: CommandContext): void {
  const command = program
    .command("import <file>")
    .description('Add plants from lines of JSON, as export prints them; "-" reads standard input')
    .addHelpText("after", example("import plants.ndjson"))
    .action(async (file: string, flags: Flags) => {
      const { importPlants } = await import("./import.ts");
      const { database, maxBodyBytes } = await configOf(flags);
      // Whatever plant came in a body comes on a line: an id may be written longer there.
      done(await importPlants(database, file, io, { maxLineBytes: Math.max(2 ** 26, maxBodyBytes + 64) }));
    });
  addFlags(command, DATABASE);
}

function declareBackup(program: Command, { io, configOf, done }: CommandContext): void {
  const command = program
    .command("backup <file>")
    .description("Copy the database into a new file, also while a server runs")
    .addHelpText("after", example("backup plants-2026-11-20.db"))
    .action(async (file: string, flags: Flags) => done(await backup((await configOf(flags)).database, file, io)));
  addFlags(command, DATABASE);
}

function declareCheck(program: Command, { io, configOf, done }: CommandContext): void {
  const command = program
    .command("check")
    .description("Read the whole database for corruption, even while a server runs");
  command.action(async (flags: Flags) => done(await check((await configOf(flags)).database, io)));
  addFlags(command.addHelpText("after", example("check")), DATABASE);
}

function declareMigrate(program: Command, { io, configOf, done }: CommandContext): void {
  const command = program
    .command("migrate")
    .description("Bring a database on PostgreSQL to the newest schema, as a role that may create tables")
    .option("--dry-run", "Print the SQL, and change nothing")
    .addHelpText("after", example("migrate --database postgres://owner@localhost/plants --dry-run"))
    .action(async (flags: Flags) =>
      done(await migrate((await configOf(flags)).database, { dryRun: flags["dryRun"] === true }, io)),
    );
  addFlags(command, DATABASE);
}

function declareOpenapi(program: Command, { io, done }: CommandContext): void {
  program
    .command("openapi")
    .description("Print the OpenAPI document")
    .option("--server <url>", "The URL that clients reach the API by", DEFAULT_SERVER)
    .addHelpText("after", example("openapi --server https://plants.example.org"))
    .action(async (flags: OpenapiOptions) => done(await (await import("./openapi.ts")).openapi(flags, io)));
}
