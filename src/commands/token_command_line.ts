import { type Command, Option } from "commander";
import { SCOPES } from "../auth/authenticate.ts";
import { type CommandContext, DATABASE, example } from "./command_context.ts";
import { addFlags } from "../settings/setting_help.ts";
import type { Flags } from "../settings/setting_table.ts";
import { createToken, type CreateTokenOptions, deleteToken, listTokens, pruneTokens, revokeToken } from "./token.ts";

/** Declares `token` and its commands, their flags and their help. */
export function declareToken(program: Command, context: CommandContext): void {
  const token = program
    .command("token")
    .description("Create, list, revoke, delete and prune bearer tokens")
    .addHelpText("after", example("token create greenhouse --expires 90d"));
  declareTokenCreate(token, context);
  declareTokenList(token, context);
  declareTokenRevoke(token, context);
  declareTokenDelete(token, context);
  declareTokenPrune(token, context);
}

function declareTokenCreate(token: Command, { io, configOf, done }: CommandContext): void {
  const command = token
    .command("create <name>")
    .description("Make a token and print it; the database keeps its SHA-256 only")
    .option(
      "--expires <lifetime>",
      "How long it is accepted: minutes, hours, days or weeks, such as 90d (default: until it is revoked)",
    )
    .addOption(new Option("--scope <scope>", "The one thing that it may be used for (default: all)").choices(SCOPES))
    .addHelpText("after", example("token create greenhouse --expires 90d"))
    .action(async (name: string, flags: Flags & CreateTokenOptions) =>
      done(await createToken((await configOf(flags)).database, name, flags, io)),
    );
  addFlags(command, DATABASE);
}

function declareTokenList(token: Command, { io, configOf, done }: CommandContext): void {
  const command = token
    .command("list")
    .description("Print every token's name, times and state, but not the token")
    .option("--json", "Print JSON")
    .addHelpText("after", example("token list --json"))
    .action(async (flags: Flags) =>
      done(await listTokens((await configOf(flags)).database, { json: flags["json"] === true }, io)),
    );
  addFlags(command, DATABASE);
}

function declareTokenRevoke(token: Command, { io, configOf, done }: CommandContext): void {
  const command = token
    .command("revoke <name>")
    .description("Accept a token no more, on running servers within five seconds")
    .addHelpText("after", example("token revoke greenhouse"))
    .action(async (name: string, flags: Flags) => done(await revokeToken((await configOf(flags)).database, name, io)));
  addFlags(command, DATABASE);
}

function declareTokenDelete(token: Command, { io, configOf, done }: CommandContext): void {
  const command = token
    .command("delete <name>")
    .description("Revoke a token and forget it: its name is free again")
    .addHelpText("after", example("token delete greenhouse"))
    .action(async (name: string, flags: Flags) => done(await deleteToken((await configOf(flags)).database, name, io)));
  addFlags(command, DATABASE);
}

function declareTokenPrune(token: Command, { io, configOf, done }: CommandContext): void {
  const command = token
    .command("prune")
    .description("Delete every token that is revoked or expired")
    .addHelpText("after", example("token prune"))
    .action(async (flags: Flags) => done(await pruneTokens((await configOf(flags)).database, io)));
  addFlags(command, DATABASE);
}
