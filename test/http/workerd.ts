import { existsSync } from "node:fs";
import { join } from "node:path";

import { missing } from "../support/missing.ts";
import { MODULE_RUNTIMES, RUNTIMES_MODULES } from "../support/module_runtimes.ts";
import { ROOT, startServer } from "../support/program.ts";

/** Runs a file with the Node that runs miniflare, which runs workerd. */
const MINIFLARE_NODE = MODULE_RUNTIMES.find(({ name }) => name === "Node 26")?.run ?? [];

/** Whether workerd is missing here: says so for what, or fails in CI. */
export function skipsWorkerd(what: string): boolean {
  return (
    !existsSync(join(RUNTIMES_MODULES, "miniflare")) &&
    missing(`${what}: bun install --frozen-lockfile --cwd test/runtimes has not run`)
  );
}

/** Bundles a Worker into one file, as Cloudflare's tools do, and gives the path of that. */
export async function bundleWorker(entry: string, directory: string): Promise<string> {
  const { outputs } = await Bun.build({
    entrypoints: [entry],
    outdir: directory,
    target: "browser",
    conditions: ["workerd", "worker"],
    external: ["node:*", "cloudflare:*"],
  });
  return outputs[0]?.path ?? "";
}

/** Serves the bundle of a Worker. At the end of the scope it is stopped: workerd is a child of it. */
export async function startWorker(bundle: string) {
  const program = [...MINIFLARE_NODE, join(ROOT, "test/runtimes/serve_workerd.ts"), bundle];
  const server = await startServer({ program });

  return {
    ...server,
    async [Symbol.asyncDispose]() {
      await using _ = server;
      await server.stop();
    },
  };
}
