import { AsyncLocalStorage } from "node:async_hooks";
import { memoryStore } from "../../src/database/memory.ts";
import { type AppOptions, createApp } from "../../src/http/app.ts";
import type { Observer } from "../../src/http/observer.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { staticTokens } from "../../src/auth/static_tokens.ts";
import { TOKEN } from "./client.ts";

export { TOKEN };

type App = ReturnType<typeof createApp>;

/** What the app calls while it handles a request. */
type Parts = Pick<AppOptions, "plants" | "ready" | "authenticate"> & { readonly observer: Observer };

/** What the app is built of. */
type Settings = Omit<AppOptions, keyof Parts>;

/**
 * The app over a fresh memory store; every part can be replaced. Elysia compiles an app at its first request, for some
 * milliseconds: calls with the same settings share one app, and each request finds the parts of its own call.
 */
export function testApp(options: Partial<AppOptions> = {}) {
  const store = memoryStore();
  const {
    plants = groupCommit(store),
    ready = () => store.probe(),
    authenticate = staticTokens([TOKEN]),
    observer = THROWS_INTERNAL_ERRORS,
    ...settings
  } = options;
  const app = appWith(settings);
  const parts: Parts = { plants, ready, authenticate, observer };
  return { fetch: (request: Request) => partsOfRequest.run(parts, () => app.fetch(request)) };
}

const THROWS_INTERNAL_ERRORS: Observer = {
  onError({ code, cause }) {
    if (code === "internal") throw cause;
  },
  onResponse() {},
};

const partsOfRequest = new AsyncLocalStorage<Parts>();

const PARTS_OF_REQUEST: Parts = {
  plants: { add: (plant) => currentParts().plants.add(plant) },
  ready: () => currentParts().ready(),
  authenticate: (token) => currentParts().authenticate(token),
  observer: {
    onError: (error, request) => currentParts().observer.onError(error, request),
    onResponse: (request) => currentParts().observer.onResponse(request),
  },
};

function currentParts(): Parts {
  const parts = partsOfRequest.getStore();
  if (parts === undefined) throw new Error("The app called a part of it without a request");
  return parts;
}

const apps: { readonly settings: Settings; readonly app: App }[] = [];

function appWith(settings: Settings): App {
  const known = apps.find((other) => isSame(other.settings, settings));
  return known?.app ?? newApp(settings);
}

function newApp(settings: Settings): App {
  const app = createApp({
    ...PARTS_OF_REQUEST,
    maxBodyBytes: 65_536,
    renderMetrics: async () => "",
    ...settings,
  });
  apps.push({ settings, app });
  return app;
}

function isSame(one: Settings, other: Settings): boolean {
  const names = Object.keys({ ...one, ...other }) as (keyof Settings)[];
  return names.every((name) => one[name] === other[name]);
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
