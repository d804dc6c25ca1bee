import { Command, CommanderError, Option } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { DatabaseError } from "../database.ts";
import { type Config, ConfigError, parseConfig, type Settings } from "./config.ts";
import { backup } from "./backup.ts";
import { type ExportOptions, exportPlants } from "./export.ts";
import { importPlants } from "./import.ts";
import { CommandError, type Io, type StreamIo } from "./io.ts";
import { openapi } from "./openapi.ts";
import { serve } from "./serve.ts";
import { createToken, listTokens, revokeToken } from "./token.ts";

/** The exit codes of the program. */
const FAILED = 1;
const CALLED_WRONGLY = 2;

/**
 * Runs the program with its arguments (without the program's own name), and resolves to its exit code: 0, 1 (it
 * failed) or 2 (it was called wrongly).
 */
export async function run(args: readonly string[], settings: Settings, io: StreamIo): Promise<number> {
  let exitCode = 0;
  const program = createProgram(settings, io, (code) => (exitCode = code));
  try {
    await program.parseAsync(withCommand(args), { from: "user" });
    return exitCode;
  } catch (error) {
    return explain(error, io);
  }
}

/** Without a command the program serves. (As commander's default command, `serve` would take a mistyped one's place.) */
function withCommand(args: readonly string[]): readonly string[] {
  const [first = "--"] = args;
  return first.startsWith("-") && !["-h", "--help", "-V", "--version"].includes(first) ? ["serve", ...args] : args;
}

function createProgram(settings: Settings, io: StreamIo, done: (exitCode: number) => void): Command {
  const program = new Command("plant-store")
    .description("A store of plants: POST /plants over HTTP, kept in SQLite.")
    .version(packageJson.version, "-V, --version", "Print the version")
    .helpOption("-h, --help", "Print this help")
    .helpCommand(true)
    .showHelpAfterError("Run with --help for what there is.")
    .exitOverride()
    .configureOutput({ writeOut: io.stdout, writeErr: io.stderr })
    .addHelpText("after", PROGRAM_HELP);
  program
    .command("serve")
    .description("Serve the API (also what happens with no command)")
    .option("--host <address>", "Where to listen [HOST] (default: 127.0.0.1)")
    .option("--port <number>", "Where to listen; 0 takes a free port [PORT] (default: 3000)")
    .option(...DATABASE)
    .addHelpText("after", SERVE_HELP)
    .action(async (flags: Flags) => done(await serve(configOf(settings, flags), io)));
  addTokenCommands(program, settings, io, done);
  addDataCommands(program, settings, io, done);
  program
    .command("openapi")
    .description("Print the OpenAPI document")
    .addHelpText("after", example("openapi > openapi.json"))
    .action(async () => done(await openapi(io)));
  return program;
}

function addDataCommands(program: Command, settings: Settings, io: StreamIo, done: (exitCode: number) => void): void {
  const format = new Option("--format <format>", "How plants are written").choices(["ndjson", "csv"]).default("ndjson");
  program
    .command("export")
    .description("Print every plant, ordered by id, also while a server runs")
    .addOption(format)
    .option(...DATABASE)
    .addHelpText("after", example("export > plants.ndjson"))
    .action(async (flags: Flags & ExportOptions) =>
      done(await exportPlants(configOf(settings, flags).database, flags, io)),
    );
  program
    .command("import <file>")
    .description('Add plants from lines of JSON, as export prints them; "-" reads standard input')
    .option(...DATABASE)
    .addHelpText("after", example("import plants.ndjson"))
    .action(async (file: string, flags: Flags) => {
      const { database, maxBodyBytes } = configOf(settings, flags);
      // A line has room for whatever plant a body has.
      done(await importPlants(database, file, io, { maxLineBytes: Math.max(2 ** 20, maxBodyBytes) }));
    });
  program
    .command("backup <file>")
    .description("Copy the database into a new file, also while a server runs")
    .option(...DATABASE)
    .addHelpText("after", example("backup plants-2026-11-20.db"))
    .action(async (file: string, flags: Flags) => done(await backup(configOf(settings, flags).database, file, io)));
}

function addTokenCommands(program: Command, settings: Settings, io: StreamIo, done: (exitCode: number) => void): void {
  const token = program.command("token").description("Create, list and revoke bearer tokens");
  token
    .command("create <name>")
    .description("Make a token and print it; the database keeps its SHA-256 only")
    .option(
      "--expires <lifetime>",
      "How long it counts: minutes, hours, days or weeks, such as 90d (default: for ever)",
    )
    .option(...DATABASE)
    .addHelpText("after", example("token create greenhouse --expires 90d"))
    .action(async (name: string, flags: Flags) =>
      done(await createToken(configOf(settings, flags).database, name, flags.expires, io)),
    );
  token
    .command("list")
    .description("Print every token's name, times and state, but not the token")
    .option("--json", "As JSON")
    .option(...DATABASE)
    .addHelpText("after", example("token list --json"))
    .action(async (flags: Flags) =>
      done(await listTokens(configOf(settings, flags).database, { json: flags.json === true }, io)),
    );
  token
    .command("revoke <name>")
    .description("Make a token count no more, on running servers within five seconds")
    .option(...DATABASE)
    .addHelpText("after", example("token revoke greenhouse"))
    .action(async (name: string, flags: Flags) =>
      done(await revokeToken(configOf(settings, flags).database, name, io)),
    );
}

const DATABASE = [
  "--database <url>",
  "Where plants are kept, as file:PATH [DATABASE_URL] (default: file:plants.db)",
] as const;

interface Flags {
  readonly host?: string;
  readonly port?: string;
  readonly database?: string;
  readonly expires?: string;
  readonly json?: boolean;
}

function configOf(settings: Settings, { host, port, database }: Flags): Config {
  const flags = { HOST: host, PORT: port, DATABASE_URL: database };
  const given = Object.entries(flags).filter(([, value]) => value !== undefined);
  return parseConfig({ ...settings, ...Object.fromEntries(given) });
}

function example(line: string): string {
  return `\nExample:\n  plant-store ${line}`;
}

const SERVE_HELP = `
Environment:
  AUTH_TOKENS          Static bearer tokens, comma-separated, each at least 16 characters (default: none)
  AUTH_JWKS_URL, AUTH_ISSUER, AUTH_AUDIENCE
                       Accept the JWTs of an identity provider (default: none)
  MAX_BODY_BYTES       The most a request's body may have (default: 65536)
  QUEUE_LIMIT          How many plants may wait for a commit (default: 10000)
  REQUEST_TIMEOUT_MS   From the body's end to the answer (default: 5000)
  SHUTDOWN_TIMEOUT_MS  Drain time after SIGTERM or SIGINT (default: 10000)
  TLS_CERT_FILE, TLS_KEY_FILE
                       Serve HTTPS with these PEM files (default: none)
  LOG_LEVEL            From which level on to log: debug, info, warning or error (default: info)
  LOG_FORMAT           pretty or json (default: pretty on a terminal, json elsewhere)
  ACCESS_LOG           Whether every request is logged, on or off (default: off)
  OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME
                       Send traces to this collector, under this name (default: none, plant-store)
  DOCS                 Whether /swagger is served, on or off (default: on)
  NODE_ENV             With "production" no token is made at the first start

Example:
  plant-store serve --port 8080 --database file:/var/lib/plant-store/plants.db`;

const PROGRAM_HELP = `
Example:
  plant-store --port 8080

Exit codes: 0, 1 (it failed), 2 (it was called wrongly).`;

/** One line for what its reader can act on; anything else is a bug, and comes with its stack. */
function explain(error: unknown, { stderr }: Io): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : CALLED_WRONGLY;
  if (error instanceof ConfigError) {
    stderr(`${error.message}\n`);
    return CALLED_WRONGLY;
  }
  const expected = error instanceof CommandError || error instanceof DatabaseError;
  stderr(`${expected ? error.message : Bun.inspect(error)}\n`);
  return FAILED;
}
