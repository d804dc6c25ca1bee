import { sha256 } from "../auth/sha256.ts";
import { ConfigError, CommandError } from "../errors.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import { type Scope, SCOPES } from "../auth/authenticate.ts";
import type { TokenRecord, TokenStore } from "../auth/token_store.ts";
import { mintToken } from "../auth/tokens.ts";
import type { DatabaseAdapter, TokenReader } from "../database/adapter.ts";
import { type Io } from "./output.ts";
import { escapeControls, writeOutput } from "./output.ts";
import { type RefusedAction, toCommandError } from "../database/storage_refusal.ts";

/** How to create a token. */
export interface CreateTokenOptions {
  /** How long it is accepted, such as `90d`. @default until it is revoked */
  readonly expires?: string;
  /** The one thing that it may be used for. @default all of them */
  readonly scope?: Scope;
}

/**
 * `plant-store token create`: prints a new token, this once; the database keeps its SHA-256.
 *
 * @throws {CommandError} If the name is taken, or the token cannot be printed: then there is none. If storage does not
 * respond in time there may be one, which the message says.
 */
export async function createToken(
  database: DatabaseLocation,
  name: string,
  { expires, scope }: CreateTokenOptions,
  io: Io,
): Promise<number> {
  requireName(name);
  const createdAt = new Date();
  const expiresAt = expires === undefined ? null : new Date(createdAt.getTime() + parseLifetime(expires));
  const token = mintToken(sha256);
  const record = { name, digest: sha256(token), createdAt, expiresAt, scopes: scope ? [scope] : SCOPES };
  const advice = `a token of this name may exist now although its secret was not shown: remove it with plant-store token delete ${name}`;
  const call = { action: `create token "${name}"`, advice, open: forCreating };
  await withTokens(database, call, async (tokens) => {
    if (!(await tokens.add(record))) throw new CommandError(`Cannot create token "${name}": the name is taken`);
    await printOrDelete(token, name, tokens, io);
  });
  const end = expiresAt ? `It expires ${expiresAt.toISOString()}.` : "It does not expire.";
  io.stderr(`Token "${name}" is shown only now. ${end}\n`);
  return 0;
}

/** A token that was stored and not printed would be accepted, and unknown to its operator. */
async function printOrDelete(token: string, name: string, tokens: TokenStore, io: Io): Promise<void> {
  try {
    await writeOutput(io, `${token}\n`);
  } catch (error) {
    await tokens.delete(name);
    throw error;
  }
}

/** `plant-store token list`: prints everything about every token, except the token itself. */
export async function listTokens(database: DatabaseLocation, { json }: { json: boolean }, io: Io): Promise<number> {
  const open = (adapter: DatabaseAdapter) => adapter.openTokens((message) => io.stderr(`${message}\n`));
  const records = await withTokens(database, { action: "list the tokens", open }, (tokens) => tokens.list());
  const rows = records.map(describe);
  await writeOutput(io, json ? `${JSON.stringify(rows, null, 2)}\n` : table(rows));
  return 0;
}

/** `plant-store token revoke`: the token is accepted no more, on running servers within seconds. */
export async function revokeToken(database: DatabaseLocation, name: string, io: Io): Promise<number> {
  const call = { action: `revoke token ${quoted(name)}`, advice: LOOK, open: forWriting };
  return withTokens(database, call, async (tokens) => {
    if (await tokens.revoke(name, new Date())) io.stderr(`Token "${name}" is revoked.\n`);
    else if ((await tokens.list()).some((token) => token.name === name))
      io.stderr(`Token "${name}" was revoked before.\n`);
    else throw new CommandError(`Cannot revoke token ${quoted(name)}: there is none of that name`);
    return 0;
  });
}

/** `plant-store token delete`: as `revoke`, and the name is free again. */
export async function deleteToken(database: DatabaseLocation, name: string, io: Io): Promise<number> {
  const call = { action: `delete token ${quoted(name)}`, advice: LOOK, open: forWriting };
  if (!(await withTokens(database, call, (tokens) => tokens.delete(name)))) {
    throw new CommandError(`Cannot delete token ${quoted(name)}: there is none of that name`);
  }
  io.stderr(`Token "${name}" is deleted.\n`);
  return 0;
}

/** `plant-store token prune`: deletes the tokens that are revoked or expired. */
export async function pruneTokens(database: DatabaseLocation, io: Io): Promise<number> {
  const call = { action: "prune the tokens", advice: LOOK, open: forWriting };
  const count = await withTokens(database, call, (tokens) => tokens.prune(new Date()));
  io.stderr(`${count} revoked or expired ${count === 1 ? "token is" : "tokens are"} deleted.\n`);
  return 0;
}

/** What was sent and had no response may still be committed. */
const LOOK = "plant-store token list shows whether it was done";

/** What a command does with tokens, and how it opens them. */
interface TokenCall extends Omit<RefusedAction, "database"> {
  readonly open: (adapter: DatabaseAdapter) => Promise<TokenReader>;
}

const forCreating: TokenCall["open"] = (adapter) => adapter.openForWriting({ create: true });
const forWriting: TokenCall["open"] = (adapter) => adapter.openForWriting();

/** Runs what a command does with the tokens of a database, and closes it. */
async function withTokens<Result>(
  database: DatabaseLocation,
  { open, ...action }: TokenCall,
  run: (tokens: TokenStore) => Promise<Result>,
): Promise<Result> {
  const adapter = await adapterOf(database);
  try {
    await using opened = await open(adapter);
    return await run(opened.tokens);
  } catch (error) {
    throw toCommandError(error, { ...action, database: adapter.name });
  }
}

/** A name is typed in shells and read in tables. */
function requireName(name: string): void {
  if (!/^[\w.@-]{1,64}$/.test(name)) {
    throw new ConfigError(
      `Cannot use token name ${quoted(name)}: expected 1 to 64 letters, digits, ".", "_", "@" or "-"`,
    );
  }
}

/** What was typed, as it may be printed: a very long one is cut. */
function quoted(text: string): string {
  const start = text.length > 80 ? `${text.slice(0, 80)}…` : text;
  return `"${escapeControls(start)}"`;
}

const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

function parseLifetime(text: string): number {
  const [, count = "0", unit] = /^(\d{1,4})([mhdw])$/.exec(text) ?? [];
  const lifetime = Number(count) * UNIT_MS[(unit ?? "m") as keyof typeof UNIT_MS];
  if (lifetime > 0) return lifetime;
  throw new ConfigError(
    `Cannot use --expires ${quoted(text)}: expected a number of minutes, hours, days or weeks, such as 90d`,
  );
}

function describe({ name, scopes, createdAt, expiresAt, lastUsedAt, revokedAt }: TokenRecord) {
  return { name, scopes, created: createdAt, expires: expiresAt, lastUsed: lastUsedAt, revoked: revokedAt };
}

type Row = ReturnType<typeof describe>;

function table(rows: readonly Row[]): string {
  const lines = [["NAME", "SCOPES", "CREATED", "EXPIRES", "LAST USED", "REVOKED"], ...rows.map(cells)];
  const widths = (lines[0] ?? []).map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map(
      (line) =>
        `${line
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join("  ")
          .trimEnd()}\n`,
    )
    .join("");
}

function cells({ name, scopes, created, expires, lastUsed, revoked }: Row): string[] {
  return [name, scopes.join(" "), minute(created), minute(expires), minute(lastUsed), minute(revoked)];
}

function minute(moment: Date | null): string {
  return moment === null ? "-" : moment.toISOString().slice(0, 16).replace("T", " ");
}
