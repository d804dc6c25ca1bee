import type { Command } from "commander";
import { parseBaseUrl } from "../settings/parsers.ts";
import { SETTINGS } from "../settings/settings.ts";
import { type CommandContext, examples } from "./command.ts";
import { type Io, writeOutput } from "./output.ts";

/** Where `serve` listens without any settings. */
const DEFAULT_SERVER = `http://${SETTINGS.host.variables.HOST}:${SETTINGS.port.variables.PORT}`;

/** Declares `plant-store openapi`. */
export function declareOpenapi(program: Command, { io, action }: CommandContext): void {
  program
    .command("openapi")
    .description("Print the OpenAPI document")
    .option("--server <url>", "The URL that clients reach the API by", DEFAULT_SERVER)
    .addHelpText("after", examples("openapi --server https://plants.example.org"))
    .action(action(({ flags }) => openapi(String(flags["server"]), io)));
}

/**
 * Prints the OpenAPI document, without a database or a server. The URL of the server has to be absolute: a file has no
 * URL that it could be relative to.
 *
 * @throws {ConfigError} If `server` is not a URL of HTTP.
 */
async function openapi(server: string, io: Io): Promise<number> {
  const url = parseBaseUrl({ name: "--server", text: server }).href.replace(/\/+$/, "");
  // Loaded here, so that no other command waits for the web framework.
  const { openApiDocument } = await import("../http/openapi.ts");
  const document = await openApiDocument({ url, description: "The server" });
  await writeOutput(io, `${JSON.stringify(document, null, 2)}\n`);
  return 0;
}
