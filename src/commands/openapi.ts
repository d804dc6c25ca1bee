import type { Command } from "commander";
import { parseBaseUrl } from "../settings/parsers.ts";
import { SETTINGS } from "../settings/settings.ts";
import { type Action, type Call, examples } from "./command.ts";
import { writeOutput } from "./output.ts";

/** Where `serve` listens without any settings. */
const DEFAULT_SERVER = `http://${SETTINGS.host.variables.HOST}:${SETTINGS.port.variables.PORT}`;

/** Declares `plant-store openapi`. */
export function declareOpenapi(program: Command, action: Action): void {
  program
    .command("openapi")
    .description("Print the OpenAPI document")
    .option("--server <url>", "The URL that clients reach the API by", DEFAULT_SERVER)
    .addHelpText("after", examples("openapi --server https://plants.example.org"))
    .action(action(openapi));
}

/** The URL of the server is absolute: a file has no URL that it could be relative to. */
async function openapi({ flags, io }: Call): Promise<number> {
  const url = parseBaseUrl({ name: "--server", text: String(flags["server"]) }).href.replace(/\/+$/, "");
  // Loaded here, so that no other command waits for the web framework.
  const { openApiDocument } = await import("../http/openapi.ts");
  const document = await openApiDocument({ url, description: "The server" });
  await writeOutput(io, `${JSON.stringify(document, null, 2)}\n`);
  return 0;
}
