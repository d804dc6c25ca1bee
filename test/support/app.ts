import { staticTokens } from "../../src/auth/static_tokens.ts";
import { memoryStore } from "../../src/database/memory.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { type AppOptions, createApp } from "../../src/http/app.ts";
import { postPlant, TOKEN } from "./client.ts";
import { headersOf } from "./load.ts";
import type { WireRequest } from "./oracle.ts";
import { streamOf } from "./stream.ts";

export { postPlant, TOKEN };

/** The app over a fresh memory store; every part can be replaced. It prints internal errors. */
export function testApp(options: Partial<AppOptions> = {}) {
  const store = memoryStore();
  return createApp({
    plants: groupCommit(store),
    ready: () => store.probe(),
    authenticate: staticTokens([TOKEN]),
    renderMetrics: async () => "",
    ...options,
  });
}

/**
 * A request as a server of the web gives it to an app: with its length, unless its body comes in
 * chunks.
 */
export function fetchRequest(
  request: WireRequest,
  { chunks }: { readonly chunks?: Iterable<Uint8Array> } = {},
): Request {
  const { method, path, body } = request;
  const host = "localhost:3000";
  const headers = new Headers([["host", host], ...headersOf(request)]);
  if (chunks === undefined) headers.set("content-length", String(body.length));
  const hasBody = method !== "GET" && method !== "HEAD";
  const sent = chunks === undefined ? body : streamOf(chunks);
  return new Request(`http://${host}${path}`, { method, headers, ...(hasBody && { body: sent }) });
}
