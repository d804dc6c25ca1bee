import { memoryStore } from "../adapters/memory.ts";
import { openApiDocument } from "../http/openapi.ts";
import { plantsApi } from "../http/plants.ts";
import { groupCommit } from "../group_commit.ts";
import { type StreamIo, writeOutput } from "./io.ts";

/** `plant-store openapi`: prints the OpenAPI document, without a database or a server. */
export async function openapi(io: Pick<StreamIo, "write">): Promise<number> {
  const api = plantsApi({ plants: groupCommit(memoryStore()), maxBodyBytes: 0 });
  await writeOutput(io, `${JSON.stringify(await openApiDocument(api), null, 2)}\n`);
  return 0;
}
