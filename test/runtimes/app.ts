import type * as sqlite from "../../src/database/sqlite/mod.ts";
import type * as source from "../../src/mod.ts";
import type { PlantStore } from "../../src/mod.ts";
import { TOKEN } from "../support/client.ts";
import { TEXT } from "../support/plants.ts";

// The same on every runtime: the app over a store in memory or in a file, and the signals that tell it
// what to do next.

/** A token with the scope `metrics` alone. */
export const METRICS_TOKEN = "metrics-token-0123456789";

/** Longer than any test takes, in milliseconds: deadlines are not what these programs are for. */
const TIMEOUT_MS = 60_000;

const { MODULE } = process.env;
/** The source, or the same module as it was built. */
const plantStore =
  MODULE === undefined
    ? await import("../../src/mod.ts")
    : ((await import(MODULE)) as typeof source);
const { createApp, groupCommit, memoryStore, PlantStoreError, readiness, SCOPES } = plantStore;
/** As the executable takes it: `--database file:PATH`. */
const database = process.argv
  .find((argument) => argument.startsWith("file:"))
  ?.slice("file:".length);
const { store, release } = database === undefined ? storeUnderTest() : await storeInFile(database);
const commits = groupCommit(store, { timeoutMs: TIMEOUT_MS });

/** The app that every runtime serves. */
export const app = createApp({
  plants: commits,
  ready: readiness(() => store.probe()),
  authenticate(token) {
    if (token === TOKEN) return { ok: true, scopes: new Set(SCOPES), subject: "test" };
    return token === METRICS_TOKEN
      ? { ok: true, scopes: new Set(["metrics"]), subject: "scraper" }
      : { ok: false, reason: "unknown" };
  },
  observer: { onError: () => {}, onResponse: () => {} },
});

/**
 * Prints the address, and obeys signals: SIGHUP releases the held plants, SIGUSR2 drains, SIGTERM
 * stops the server.
 */
export function underTest(address: string, stop: () => Promise<unknown>): void {
  process.on("SIGHUP", release);
  process.on("SIGUSR2", () => {
    void commits.drain(TIMEOUT_MS);
    console.error("drains");
  });
  process.on("SIGTERM", async () => {
    await stop();
    process.exit(0);
  });
  console.error(`Test app listens on ${address}`);
}

/** The module's own store, which ends the process once it may acknowledge nothing more. */
async function storeInFile(path: string) {
  const url = new URL("database/sqlite/mod.js", MODULE);
  const { sqliteStore } = (await import(url.href)) as typeof sqlite;
  const store = await sqliteStore(path);
  void store.failed.then(() => process.exit(1));
  return { store, release: () => {} };
}

/** A store that does what a bad day brings, by the text of the plant. */
function storeUnderTest() {
  const memory = memoryStore();
  let held = Promise.withResolvers<void>();

  const add: PlantStore["add"] = async (plants, options) => {
    for (const { id, [TEXT]: text } of plants) {
      if (text === "broken") throw new Error("SELECT secret FROM /var/lib/plants.db");
      if (text === "full") throw new PlantStoreError("storage_unavailable");
      if (text !== "held") continue;
      console.error(`holds ${id}`);
      await held.promise;
    }

    return memory.add(plants, options);
  };

  const release = () => {
    held.resolve();
    held = Promise.withResolvers();
  };

  return { store: { ...memory, add }, release };
}
