import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { TOKEN } from "./client.ts";
import { installPackage } from "./installed_package.ts";
import { MODULE_RUNTIMES, type ModuleRuntime, skipsRuntimes } from "./module_runtimes.ts";
import { skipsCluster, startCluster } from "./postgres.ts";
import { ROOT, startServer } from "./program.ts";

export { METRICS_TOKEN, QUEUE_LIMIT } from "../runtimes/app.ts";

/** What serves the app: their HTTP parsers differ. */
export type RuntimeKind = ModuleRuntime["kind"];

/** A server that the wire suite runs against. */
export interface Runtime {
  readonly name: string;
  readonly kind: RuntimeKind;
  /** Whether it obeys the signals of `test/runtimes/app.ts`; the program itself does not. */
  readonly isTestApp: boolean;
  /** Whether it is missing here. Says so; with `CI` set it throws. */
  readonly skips: () => boolean;
  readonly prepare: () => Promise<RuntimeHost>;
}

/** What a runtime's servers stand on, such as a database server; it is gone at the end of the scope. */
export interface RuntimeHost extends AsyncDisposable {
  /** Starts a server that has stored nothing. */
  readonly start: () => Promise<RuntimeServer>;
}

/** A server that runs; it is gone at the end of the scope. */
export type RuntimeServer = Awaited<ReturnType<typeof startServer>>;

/** All that the wire suite runs against. The adapters of a database are Bun's, so the program runs on Bun only. */
export const RUNTIMES: readonly Runtime[] = [
  ...MODULE_RUNTIMES.map(testApp),
  { name: "the program on SQLite", kind: "bun", isTestApp: false, skips: () => false, prepare: onSqlite },
  { name: "the program on PostgreSQL", kind: "bun", isTestApp: false, skips: skipsCluster, prepare: onPostgres },
];

/**
 * The app over a store in memory. On one runtime the app is that of the package, as it is built: what is packed has to
 * meet all cases, too.
 */
function testApp({ name, run, kind }: ModuleRuntime): Runtime {
  const isPacked = name === "Node 26";
  return {
    name: isPacked ? `${name} with the packed module` : name,
    kind,
    isTestApp: true,
    skips: () => kind !== "bun" && skipsRuntimes(`the wire suite on ${name}`),
    async prepare() {
      const installed = isPacked ? await installPackage() : undefined;
      const env = installed && { MODULE: pathToFileURL(join(installed.path, PACKED_MODULE)).href };
      const options = { program: [...run, `serve_${kind}.ts`], cwd: join(ROOT, "test/runtimes"), ...(env && { env }) };
      return {
        start: () => startServer(options),
        [Symbol.asyncDispose]: async () => installed?.[Symbol.dispose](),
      };
    },
  };
}

const PACKED_MODULE = "node_modules/plant-store/dist/module/mod.js";

async function onSqlite(): Promise<RuntimeHost> {
  return { start: () => startServer({ env: { AUTH_TOKENS: TOKEN } }), async [Symbol.asyncDispose]() {} };
}

async function onPostgres(): Promise<RuntimeHost> {
  const cluster = await startCluster();
  return {
    async start() {
      const { url } = await cluster.newDatabase();
      return startServer({ env: { AUTH_TOKENS: TOKEN, DATABASE_URL: url } });
    },
    [Symbol.asyncDispose]: cluster[Symbol.asyncDispose],
  };
}
