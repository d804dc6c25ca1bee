import { parseBaseUrl } from "../settings/parsers.ts";
import { SETTINGS } from "../settings/settings.ts";
import type { Subcommand } from "./command.ts";
import { writeOutput } from "./terminal.ts";

/** The URL of `serve` without any settings. */
const DEFAULT_SERVER = `http://${SETTINGS.host.variables.HOST}:${SETTINGS.port.variables.PORT}`;

/** `plant-store openapi`. The URL of the server is absolute, because a file has no base URL. */
export const openapi: Subcommand = {
  usage: "openapi",
  description: "Print the OpenAPI document",
  flags: [["--server <url>", "The URL that clients reach the API by", DEFAULT_SERVER]],
  example: "openapi --server https://plants.example.org",
  async run({ flags, io }) {
    const url = parseBaseUrl({ name: "--server", text: String(flags["server"]) }).href.replace(
      /\/+$/,
      "",
    );
    // Loaded here, so that no other command waits for the web framework.
    const { openApiDocument } = await import("../http/openapi.ts");
    const document = await openApiDocument({ url, description: "The server" });
    await writeOutput(io, `${JSON.stringify(document, null, 2)}\n`);
  },
};
