import { sha256 } from "../adapters/sha256.ts";
import { ConfigError, type DatabaseLocation } from "./config.ts";
import { SCOPES } from "../scopes.ts";
import type { TokenRecord, TokenStore } from "../token_store.ts";
import { mintToken } from "../auth/tokens.ts";
import { CommandError, type Io } from "./io.ts";
import { openForWriting } from "./open_database.ts";

/**
 * `plant-store token create`: prints a new token, this once; the database keeps its SHA-256.
 *
 * @param lifetime How long it counts, such as `90d`; without one, until it is revoked.
 */
export async function createToken(
  database: DatabaseLocation,
  name: string,
  lifetime: string | undefined,
  io: Io,
): Promise<number> {
  requireName(name);
  const createdAt = new Date();
  const expiresAt = lifetime === undefined ? null : new Date(createdAt.getTime() + parseLifetime(lifetime));
  const token = mintToken(sha256);
  const keep = async (tokens: TokenStore) => {
    if (!(await tokens.add({ name, digest: sha256(token), createdAt, expiresAt, scopes: SCOPES }))) {
      throw new CommandError(`Cannot create token "${name}": the name is taken`);
    }
    io.stdout(`${token}\n`);
    io.stderr(
      `Token "${name}" is shown only now. ${expiresAt ? `It expires ${expiresAt.toISOString()}.` : "It does not expire."}\n`,
    );
    return 0;
  };
  return withTokens(database, keep, { create: true });
}

/** `plant-store token list`: prints what is known of every token but the token. */
export async function listTokens(database: DatabaseLocation, { json }: { json: boolean }, io: Io): Promise<number> {
  return withTokens(database, async (tokens) => {
    const rows = (await tokens.list()).map(describe);
    io.stdout(json ? `${JSON.stringify(rows, null, 2)}\n` : table(rows));
    return 0;
  });
}

/** `plant-store token revoke`: the token counts no more, on running servers within seconds. */
export async function revokeToken(database: DatabaseLocation, name: string, io: Io): Promise<number> {
  return withTokens(database, async (tokens) => {
    if (await tokens.revoke(name, new Date())) io.stderr(`Token "${name}" is revoked.\n`);
    else if ((await tokens.list()).some((token) => token.name === name))
      io.stderr(`Token "${name}" was revoked before.\n`);
    else throw new CommandError(`Cannot revoke token "${name}": there is none of that name`);
    return 0;
  });
}

/** A token may be made before the first start; to list or revoke one there has to be a database. */
async function withTokens(
  database: DatabaseLocation,
  use: (tokens: TokenStore) => Promise<number>,
  { create = false }: { create?: boolean } = {},
): Promise<number> {
  await using opened = await openForWriting(database, { create });
  return await use(opened.tokens);
}

/** A name is typed in shells and read in tables. */
function requireName(name: string): void {
  if (!/^[\w.@-]{1,64}$/.test(name)) {
    throw new ConfigError(`Cannot use token name "${name}": expected 1 to 64 letters, digits, ".", "_", "@" or "-"`);
  }
}

const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

function parseLifetime(text: string): number {
  const [, count = "0", unit] = /^(\d{1,4})([mhdw])$/.exec(text) ?? [];
  const lifetime = Number(count) * UNIT_MS[(unit ?? "m") as keyof typeof UNIT_MS];
  if (lifetime > 0) return lifetime;
  throw new ConfigError(
    `Cannot use --expires "${text}": expected a number of minutes, hours, days or weeks, such as 90d`,
  );
}

function describe({ name, createdAt, expiresAt, lastUsedAt, revokedAt }: TokenRecord) {
  return { name, created: createdAt, expires: expiresAt, lastUsed: lastUsedAt, revoked: revokedAt };
}

type Row = ReturnType<typeof describe>;

function table(rows: readonly Row[]): string {
  const lines = [["NAME", "CREATED", "EXPIRES", "LAST USED", "REVOKED"], ...rows.map(cells)];
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

function cells({ name, created, expires, lastUsed, revoked }: Row): string[] {
  return [name, minute(created), minute(expires), minute(lastUsed), minute(revoked)];
}

function minute(moment: Date | null): string {
  return moment === null ? "-" : moment.toISOString().slice(0, 16).replace("T", " ");
}
