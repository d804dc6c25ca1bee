import { memoryStore } from "../../src/adapters/memory.ts";
import { type AppOptions, createApp } from "../../src/app.ts";
import { groupCommit } from "../../src/group_commit.ts";
import { tokenChecker } from "../../src/tokens.ts";

/** The token that a test app knows. */
export const TOKEN = "test-token-0123456789";

/** SHA-256 as the program uses it. */
export const sha256 = (text: string): Uint8Array => Bun.SHA256.hash(text, new Uint8Array(32)) as Uint8Array;

/** A fresh app over a fresh memory store; every part can be replaced. */
export function testApp(options: Partial<AppOptions> = {}) {
  const store = memoryStore();
  return createApp({
    plants: groupCommit(store, { defer: (run) => void setImmediate(run) }),
    ready: () => store.probe(),
    authenticate: tokenChecker([sha256(TOKEN)], sha256),
    maxBodyBytes: 65_536,
    onFault: (cause) => {
      throw cause;
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
