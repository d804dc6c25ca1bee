import { memoryStore } from "../database/memory.ts";
import { openApiDocument } from "../http/openapi.ts";
import { plantsApi } from "../http/plants.ts";
import { groupCommit } from "../group_commit/group_commit.ts";
import { type Io } from "./output.ts";
import { writeOutput } from "./output.ts";
import { parseBaseUrl } from "../settings/setting_parsers.ts";

/** The flags of `openapi`. */
export interface OpenapiOptions {
  /** The URL that clients reach the API by, with its path prefix if it has one. */
  readonly server: string;
}

/**
 * `plant-store openapi`: prints the OpenAPI document, without a database or a server. In a file the server's URL has to
 * be absolute: there is nothing that it could be relative to.
 *
 * @throws {ConfigError} If `server` is no URL of HTTP.
 */
export async function openapi({ server }: OpenapiOptions, io: Pick<Io, "write">): Promise<number> {
  const url = parseBaseUrl("--server", server).href.replace(/\/+$/, "");
  const api = plantsApi({ plants: groupCommit(memoryStore()), maxBodyBytes: 0 });
  const document = await openApiDocument(api, { url, description: "The server" });
  await writeOutput(io, `${JSON.stringify(document, null, 2)}\n`);
  return 0;
}
