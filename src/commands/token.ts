import { SCOPES } from "../auth/authenticate.ts";
import { mintToken } from "../auth/token_format.ts";
import {
  type TokenRecord,
  TOKENS_MAX_AGE_MS,
  tokenStatus,
  type TokenStore,
} from "../auth/token_store.ts";
import type { DatabaseAdapter, OpenTokens } from "../database/adapter.ts";
import { type RefusedAction, toCommandError } from "../database/refusals.ts";
import { CommandError, ConfigError, escapeControls } from "../errors.ts";
import { type Input, parseChoice, refusal } from "../settings/parsers.ts";
import { type Call, DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { counted, quoted } from "./formatting.ts";
import { JSON_FLAG, printResult } from "./result.ts";
import { writeOutput } from "./terminal.ts";

/** The commands of `plant-store token`. */
export const TOKEN_COMMANDS: readonly Subcommand[] = [
  {
    usage: "create <name>",
    description: "Create a token and print it; the database keeps its SHA-256 only",
    flags: [
      [
        "--expires <lifetime>",
        "How long it is accepted, such as 90d; m, h or d (default: until it is revoked)",
      ],
      ["--scope <scope>", `What the token may be used for: ${SCOPES.join(" or ")} (default: all)`],
      ...DATABASE_FLAGS,
    ],
    example: "token create greenhouse --expires 90d",
    run: createToken,
  },

  {
    usage: "list",
    description: "Print every token's name, status and times, but not the token",
    flags: [JSON_FLAG, ...DATABASE_FLAGS],
    example: "token list --json",
    async run({ flags, adapter, io }) {
      const { name: database, openForListing, howToRun } = await adapter();
      await withTokens(openForListing, { action: "list the tokens", database }, async (tokens) => {
        const records = await tokens.list();
        await printResult({ io, flags }, records.map(toJson), async () => {
          await writeOutput(io, table(records));
          if (records.length === 0)
            io.stderr(
              `No tokens in "${database}"; to create one, ${howToRun("token create NAME")}\n`,
            );
        });
      });
    },
  },

  {
    usage: "revoke <name>",
    description: `Stop accepting a token, on running servers within ${TOKENS_MAX_AGE_MS / 1_000} seconds`,
    example: "token revoke greenhouse",
    async run({ argument: name, adapter, io }) {
      await changeTokens(adapter, `revoke token ${quoted(name)}`, async (tokens, database) => {
        if (await tokens.revoke(name, new Date()))
          io.stderr(`Revoked token "${name}" in "${database.name}".\n`);
        else if ((await tokens.list()).some((token) => token.name === name))
          io.stderr(`Token "${name}" in "${database.name}" was already revoked.\n`);
        else throw noSuchToken("revoke", name, database);
      });
    },
  },

  {
    usage: "delete <name>",
    description: "Delete a token, which also revokes it; its name can be reused",
    flags: [["--yes", "Required: confirms the deletion"], ...DATABASE_FLAGS],
    example: "token delete greenhouse --yes",
    async run({ argument: name, flags, adapter, io }) {
      const from = (await adapter()).name;
      if (flags["yes"] !== true)
        throw new ConfigError(
          `Cannot delete token ${quoted(name)} from "${from}" without --yes: clients that use it are refused`,
        );

      await changeTokens(adapter, `delete token ${quoted(name)}`, async (tokens, database) => {
        if (!(await tokens.delete(name))) throw noSuchToken("delete", name, database);
        io.stderr(`Deleted token "${name}" from "${database.name}".\n`);
      });
    },
  },

  {
    usage: "prune",
    description: "Delete every token that is revoked or expired",
    example: "token prune",
    async run({ adapter, io }) {
      await changeTokens(adapter, "prune the tokens", async (tokens, database) => {
        const count = await tokens.prune(new Date());
        io.stderr(
          `Deleted ${counted(count, "revoked or expired token")} from "${database.name}".\n`,
        );
      });
    },
  },
];

/** Stores a token, and prints it. Deletes it again if printing fails. */
async function createToken({ argument: name, flags, adapter, io }: Call): Promise<void> {
  const { name: database, openForWriting, howToRun } = await adapter();

  const { expires, scope } = flags;
  const lifetimeMs =
    typeof expires === "string" ? parseLifetime({ name: "--expires", text: expires }) : undefined;
  const scopes =
    typeof scope === "string" ? [parseChoice({ name: "--scope", text: scope }, SCOPES)] : SCOPES;

  // People type names in shells, and read them in tables.
  if (!/^[\w.@-]{1,64}$/.test(name)) {
    const expected = 'expected 1 to 64 letters, digits, ".", "_", "@" or "-"';
    throw new ConfigError(`Cannot use token name ${quoted(name)}: ${expected}`);
  }

  const { token, digest } = mintToken();
  const createdAt = new Date();
  const expiresAt = lifetimeMs === undefined ? null : new Date(createdAt.getTime() + lifetimeMs);
  const record = { name, digest, createdAt, expiresAt, scopes };

  const action = `create token "${name}"`;
  const toDelete = howToRun(`token delete ${name}`);
  const advice = `if it exists now, its secret was not shown: ${toDelete}`;
  const onCreate = (created: string) => io.stderr(`Initialized empty database "${created}".\n`);
  const open = () => openForWriting({ create: true, onCreate });

  await withTokens(open, { action, database, advice }, async (tokens) => {
    if (!(await tokens.add(record))) {
      const reason = await whyNotAdded(tokens, name, toDelete);
      throw new CommandError(`Cannot ${action} in "${database}": ${reason}`);
    }

    // A token that could not be printed is lost, but would still be accepted.
    await writeOutput(io, `${token}\n`).catch(async (error) => {
      await tokens.delete(name);
      throw error;
    });

    const end = expiresAt ? `It expires ${expiresAt.toISOString()}.` : "It does not expire.";
    io.stderr(
      `Created token "${name}" in "${database}". Save it: it cannot be shown again. ${end}\n`,
    );
  });
}

async function whyNotAdded(tokens: TokenStore, name: string, toDelete: string): Promise<string> {
  const known = (await tokens.list()).find((token) => token.name === name);
  if (known === undefined || known.revokedAt === null)
    return `the name is taken; if nobody has its secret, ${toDelete}`;

  return `a revoked token has this name; to free it, ${toDelete}`;
}

const UNIT_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A century, in milliseconds. */
const MAX_LIFETIME_MS = 36_500 * 86_400_000;

/** Parses how long a token is accepted. Returns milliseconds. */
function parseLifetime(input: Input): number {
  const [, count = "", unit = ""] = /^(\d+)([mhd])$/.exec(input.text) ?? [];
  const lifetime = Number(count) * (UNIT_MS[unit] ?? 0);
  if (lifetime > 0 && lifetime <= MAX_LIFETIME_MS) return lifetime;

  const units = "m, h or d for minutes, hours or days";
  throw refusal(input, `expected a number and its unit, such as 90d: ${units}; at most 36500d`);
}

function noSuchToken(action: string, name: string, database: DatabaseAdapter): CommandError {
  const reason = `no token has this name; to see all, ${database.howToRun("token list")}`;
  return new CommandError(
    `Cannot ${action} token ${quoted(name)} in "${database.name}": ${reason}`,
  );
}

/** Runs a command on the tokens of a database that exists. */
async function changeTokens(
  adapter: Call["adapter"],
  action: string,
  change: (tokens: TokenStore, database: DatabaseAdapter) => Promise<void>,
): Promise<void> {
  const database = await adapter();
  const { name, openForWriting } = database;
  // A request without a response may still be committed. A failover may undo a state that `token
  // list` has shown.
  const advice = "it may be done: run it again";
  return withTokens(openForWriting, { action, database: name, advice }, (tokens) =>
    change(tokens, database),
  );
}

/** Opens the tokens of a database, runs a command on them, and closes the database. */
async function withTokens(
  open: () => Promise<OpenTokens>,
  refused: RefusedAction,
  run: (tokens: TokenStore) => Promise<void>,
): Promise<void> {
  try {
    await using opened = await open();
    await run(opened.tokens);
  } catch (error) {
    throw toCommandError(error, refused);
  }
}

function toJson(token: TokenRecord) {
  const { name, scopes, createdAt, expiresAt, lastUsedAt, revokedAt } = token;
  const times = {
    created: createdAt,
    expires: expiresAt,
    lastUsed: lastUsedAt,
    revoked: revokedAt,
  };
  return { name, status: tokenStatus(token), scopes, ...times };
}

const HEADER = ["NAME", "STATUS", "SCOPES", "CREATED (UTC)", "EXPIRES (UTC)", "LAST USED (UTC)"];

function table(records: readonly TokenRecord[]): string {
  const rows = records.map((token) => {
    const times = [token.createdAt, token.expiresAt, token.lastUsedAt].map(minute);
    // A name created with SQL, or imported from another database, may have any characters.
    return [escapeControls(token.name), tokenStatus(token), token.scopes.join(" "), ...times];
  });
  const lines = [HEADER, ...rows];

  const widths = HEADER.map((_, column) =>
    Math.max(...lines.map((line) => line[column]?.length ?? 0)),
  );
  const pad = (cell: string, column: number) => cell.padEnd(widths[column] ?? 0);
  return lines.map((line) => `${line.map(pad).join("  ").trimEnd()}\n`).join("");
}

function minute(moment: Date | null): string {
  return moment === null ? "-" : moment.toISOString().slice(0, 16).replace("T", " ");
}
