import { memoryStore } from "../../src/adapters/memory.ts";
import { type AppOptions, createApp } from "../../src/http/app.ts";
import { groupCommit } from "../../src/group_commit.ts";
import { staticTokens } from "../../src/adapters/static_tokens.ts";
import { TOKEN } from "./client.ts";

export { TOKEN };

const endpoint = process.env["TEST_TRACING"];

/** With the address of a collector in `TEST_TRACING`, every test app is traced. */
const tracing =
  endpoint &&
  (await import("../../src/adapters/tracing.ts")).startTracing({
    endpoint: new URL(endpoint),
    serviceName: "test",
    onFailure(reason) {
      throw new Error(reason);
    },
  });

/** A fresh app over a fresh memory store; every part can be replaced. */
export function testApp(options: Partial<AppOptions> = {}) {
  const store = memoryStore();
  return createApp({
    plants: groupCommit(store),
    ready: () => store.probe(),
    authenticate: staticTokens([TOKEN]),
    maxBodyBytes: 65_536,
    renderMetrics: async () => "",
    ...(tracing && { instrumentation: tracing.plugin }),
    observer: {
      onError({ code, cause }) {
        if (code === "internal") throw cause;
      },
      onResponse() {},
    },
    ...options,
  });
}

/** A `POST /plants` with good credentials and media type; headers given replace these, `null` removes one. */
export function postPlant(body: BodyInit | object, headers: Record<string, string | null> = {}): Request {
  const all = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json", ...headers };
  return new Request("http://localhost:3000/plants", {
    method: "POST",
    headers: Object.entries(all).filter((header): header is [string, string] => header[1] !== null),
    body: isBody(body) ? body : JSON.stringify(body),
  });
}

function isBody(body: BodyInit | object): body is BodyInit {
  return typeof body === "string" || body instanceof Uint8Array || body instanceof ReadableStream;
}
