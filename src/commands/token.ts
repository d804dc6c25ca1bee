import type { Command } from "commander";
import { type Scope, SCOPES } from "../auth/authenticate.ts";
import { sha256 } from "../auth/sha256.ts";
import type { TokenRecord, TokenStore } from "../auth/token_store.ts";
import { mintToken } from "../auth/tokens.ts";
import type { DatabaseAdapter, TokenReader } from "../database/adapter.ts";
import { adapterOf, type DatabaseLocation, type RefusedAction, toCommandError } from "../database/open_database.ts";
import { CommandError, ConfigError } from "../errors.ts";
import { type Input, parseChoice, refusal } from "../settings/parsers.ts";
import { addDatabaseFlag, type CommandContext, examples } from "./command.ts";
import { counted, type Io, quoted, writeOutput } from "./output.ts";

/** Declares `plant-store token` and its commands. */
export function declareToken(program: Command, { io, action }: CommandContext): void {
  const token = program
    .command("token")
    .description("Create, list, revoke, delete and prune bearer tokens")
    .helpCommand(false)
    .addHelpText("after", examples("token create greenhouse --expires 90d", "token list"));
  const create = token
    .command("create <name>")
    .description("Create a token and print it; the database keeps its SHA-256 only")
    .option("--expires <lifetime>", "How long it is accepted, such as 90d; m, h, d or w (default: until it is revoked)")
    .option("--scope <scope>", "The one thing that it may be used for: write or metrics (default: both)")
    .addHelpText("after", examples("token create greenhouse --expires 90d"))
    .action(
      action(async ({ argument, flags, config }) =>
        createToken((await config()).database, argument, parseCreateFlags(flags), io),
      ),
    );
  const list = token
    .command("list")
    .description("Print every token's name, status and times, but not the token")
    .option("--json", "Print JSON")
    .addHelpText("after", examples("token list --json"))
    .action(
      action(async ({ flags, config }) => listTokens((await config()).database, { json: flags["json"] === true }, io)),
    );
  const revoke = token
    .command("revoke <name>")
    .description("Stop accepting a token, on running servers within five seconds")
    .addHelpText("after", examples("token revoke greenhouse"))
    .action(action(async ({ argument, config }) => revokeToken((await config()).database, argument, io)));
  const remove = token
    .command("delete <name>")
    .description("Revoke a token and forget it: its name is free again")
    .addHelpText("after", examples("token delete greenhouse"))
    .action(action(async ({ argument, config }) => deleteToken((await config()).database, argument, io)));
  const prune = token
    .command("prune")
    .description("Delete every token that is revoked or expired")
    .addHelpText("after", examples("token prune"))
    .action(action(async ({ config }) => pruneTokens((await config()).database, io)));
  for (const command of [create, list, revoke, remove, prune]) addDatabaseFlag(command);
}

interface CreateOptions {
  /** In milliseconds; `undefined` until it is revoked. */
  readonly lifetimeMs: number | undefined;
  readonly scopes: readonly Scope[];
}

function parseCreateFlags({ expires, scope }: Record<string, unknown>): CreateOptions {
  return {
    lifetimeMs: typeof expires === "string" ? parseLifetime({ name: "--expires", text: expires }) : undefined,
    scopes: typeof scope === "string" ? [parseChoice({ name: "--scope", text: scope }, SCOPES)] : SCOPES,
  };
}

const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

function parseLifetime(input: Input): number {
  const [, count = "0", unit = ""] = /^(\d{1,4})([mhdw]?)$/.exec(input.text) ?? [];
  const lifetime = Number(count) * (UNIT_MS[unit as keyof typeof UNIT_MS] ?? 0);
  if (lifetime > 0) return lifetime;
  const units = "m, h, d or w for minutes, hours, days or weeks";
  if (Number(count) > 0) throw refusal(input, `expected a unit behind the number: ${units}, such as ${count}d`);
  throw refusal(input, `expected a number and its unit: ${units}, such as 90d`);
}

/**
 * Creates a token and prints it once; the database keeps its SHA-256.
 *
 * @throws {CommandError} If the name is taken, or the token cannot be printed: then there is none. If storage does not
 * respond in time, there may be one, as the message says.
 */
async function createToken(
  database: DatabaseLocation,
  name: string,
  { lifetimeMs, scopes }: CreateOptions,
  io: Io,
): Promise<number> {
  requireName(name);
  const createdAt = new Date();
  const expiresAt = lifetimeMs === undefined ? null : new Date(createdAt.getTime() + lifetimeMs);
  const token = mintToken(sha256);
  const record = { name, digest: sha256(token), createdAt, expiresAt, scopes };
  const advice = `a token of this name may exist now although its secret was not shown: remove it with plant-store token delete ${name}`;
  const open: TokenCall["open"] = (adapter) =>
    adapter.openForWriting({ create: true, onCreate: () => io.stderr(`Created database "${adapter.name}".\n`) });
  await withTokens(database, { action: `create token "${name}"`, advice, open }, async (tokens, where) => {
    if (!(await tokens.add(record))) throw await nameTaken(tokens, name, where);
    await printOrDelete(token, name, tokens, io);
    const end = expiresAt ? `It expires ${expiresAt.toISOString()}.` : "It does not expire.";
    io.stderr(`Created token "${name}" in "${where}". Save it: it cannot be shown again. ${end}\n`);
  });
  return 0;
}

async function nameTaken(tokens: TokenStore, name: string, where: string): Promise<CommandError> {
  const isRevoked = (await tokens.list()).some((known) => known.name === name && known.revokedAt !== null);
  const reason = isRevoked
    ? `a revoked token has this name; free it with plant-store token delete ${name}`
    : "the name is taken";
  return new CommandError(`Cannot create token "${name}" in "${where}": ${reason}`);
}

/** If printing fails, deletes the token: it would be accepted, but nobody would know it. */
async function printOrDelete(token: string, name: string, tokens: TokenStore, io: Io): Promise<void> {
  try {
    await writeOutput(io, `${token}\n`);
  } catch (error) {
    await tokens.delete(name);
    throw error;
  }
}

/** Prints all that is stored of every token. */
async function listTokens(database: DatabaseLocation, { json }: { json: boolean }, io: Io): Promise<number> {
  const open: TokenCall["open"] = (adapter) => adapter.openTokens((message) => io.stderr(`${message}\n`));
  return withTokens(database, { action: "list the tokens", open }, async (tokens, where) => {
    const records = await tokens.list();
    await writeOutput(io, json ? `${JSON.stringify(records.map(toJson), null, 2)}\n` : table(records));
    if (records.length === 0 && !json)
      io.stderr(`No tokens in "${where}". Create one: plant-store token create NAME\n`);
    return 0;
  });
}

/** Revokes a token: running servers refuse it within seconds. */
async function revokeToken(database: DatabaseLocation, name: string, io: Io): Promise<number> {
  const call = { action: `revoke token ${quoted(name)}`, advice: LOOK, open: forWriting };
  return withTokens(database, call, async (tokens, where) => {
    if (await tokens.revoke(name, new Date())) io.stderr(`Revoked token "${name}" in "${where}".\n`);
    else if ((await tokens.list()).some((token) => token.name === name))
      io.stderr(`Token "${name}" in "${where}" was already revoked.\n`);
    else throw noSuchToken("revoke", name, where);
    return 0;
  });
}

/** Deletes a token: as `revoke`, and the name is free again. */
async function deleteToken(database: DatabaseLocation, name: string, io: Io): Promise<number> {
  const call = { action: `delete token ${quoted(name)}`, advice: LOOK, open: forWriting };
  return withTokens(database, call, async (tokens, where) => {
    if (!(await tokens.delete(name))) throw noSuchToken("delete", name, where);
    io.stderr(`Deleted token "${name}" from "${where}".\n`);
    return 0;
  });
}

function noSuchToken(action: string, name: string, where: string): CommandError {
  const reason = "no token has this name; plant-store token list shows all";
  return new CommandError(`Cannot ${action} token ${quoted(name)} in "${where}": ${reason}`);
}

async function pruneTokens(database: DatabaseLocation, io: Io): Promise<number> {
  const call = { action: "prune the tokens", advice: LOOK, open: forWriting };
  return withTokens(database, call, async (tokens, where) => {
    const count = await tokens.prune(new Date());
    io.stderr(`Deleted ${counted(count, "revoked or expired token")} from "${where}".\n`);
    return 0;
  });
}

/** A request without a response may still be committed. */
const LOOK = "plant-store token list shows whether it was done";

/** How a command opens the tokens, and what it reports if that fails. */
interface TokenCall extends Omit<RefusedAction, "database"> {
  readonly open: (adapter: DatabaseAdapter) => Promise<TokenReader>;
}

const forWriting: TokenCall["open"] = (adapter) => adapter.openForWriting();

/**
 * Opens the tokens of a database, runs a command on them, and closes the database.
 *
 * @param run Also gets the name of the database for messages.
 */
async function withTokens<Result>(
  database: DatabaseLocation,
  { open, ...action }: TokenCall,
  run: (tokens: TokenStore, where: string) => Promise<Result>,
): Promise<Result> {
  const adapter = await adapterOf(database);
  try {
    await using opened = await open(adapter);
    return await run(opened.tokens, adapter.name);
  } catch (error) {
    throw toCommandError(error, { ...action, database: adapter.name });
  }
}

/** People type names in shells, and read them in tables. */
function requireName(name: string): void {
  if (!/^[\w.@-]{1,64}$/.test(name)) {
    throw new ConfigError(
      `Cannot use token name ${quoted(name)}: expected 1 to 64 letters, digits, ".", "_", "@" or "-"`,
    );
  }
}

function toJson(token: TokenRecord) {
  const { name, scopes, createdAt, expiresAt, lastUsedAt, revokedAt } = token;
  const times = { created: createdAt, expires: expiresAt, lastUsed: lastUsedAt, revoked: revokedAt };
  return { name, status: tokenStatus(token), scopes, ...times };
}

function tokenStatus({ revokedAt, expiresAt }: TokenRecord): "active" | "expired" | "revoked" {
  if (revokedAt !== null) return "revoked";
  return expiresAt !== null && expiresAt.getTime() <= Date.now() ? "expired" : "active";
}

const HEADER = ["NAME", "STATUS", "SCOPES", "CREATED (UTC)", "EXPIRES (UTC)", "LAST USED (UTC)"];

function table(records: readonly TokenRecord[]): string {
  const lines = [HEADER, ...records.map(cells)];
  const widths = HEADER.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const pad = (cell: string, column: number) => cell.padEnd(widths[column] ?? 0);
  return lines.map((line) => `${line.map(pad).join("  ").trimEnd()}\n`).join("");
}

function cells(token: TokenRecord): string[] {
  const { name, scopes, createdAt, expiresAt, lastUsedAt } = token;
  return [name, tokenStatus(token), scopes.join(" "), minute(createdAt), minute(expiresAt), minute(lastUsedAt)];
}

function minute(moment: Date | null): string {
  return moment === null ? "-" : moment.toISOString().slice(0, 16).replace("T", " ");
}
