// Serves the bundle of a Worker, on Node: workerd itself takes no signals.
import { readFileSync } from "node:fs";

import { Miniflare } from "miniflare";

import type { Garden } from "./workerd.ts";

const [file = ""] = process.argv.slice(2);
const contents = readFileSync(file, "utf8");

const miniflare = new Miniflare({
  modules: [{ type: "ESModule", path: "worker.mjs", contents }],
  // The oldest that allows generated code.
  compatibilityDate: "2025-06-01",
  compatibilityFlags: ["nodejs_compat"],
  cf: false,
  durableObjects: { GARDEN: { className: "Garden", useSQLite: true } },
  // Without miniflare's own Worker in between, which changes requests.
  unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
  handleRuntimeStdio(stdout, stderr) {
    stdout.pipe(process.stdout);
    stderr.pipe(process.stderr);
  },
});

await miniflare.ready;

const objects = await miniflare.getDurableObjectNamespace<Garden>("GARDEN");
const object = objects.getByName("garden");
for (const name of ["SIGHUP", "SIGUSR2"] as const) process.on(name, () => object.signal(name));

// Miniflare's own handler ends with 143.
process.removeAllListeners("SIGTERM");
process.on("SIGTERM", async () => {
  await miniflare.dispose();
  process.exit(0);
});

const { origin } = await miniflare.unsafeGetDirectURL();
console.error(`Test app listens on ${origin}`);
