import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { MODULE_RUNTIMES, type ModuleRuntime, skipsRuntimes } from "./module_runtimes.ts";
import { TOKEN } from "./client.ts";
import { installPackage } from "./installed_package.ts";
import { skipsCluster, startCluster } from "./postgres.ts";
import { emptyDirectory, ROOT, startServer } from "./program.ts";

/** What serves the app: their HTTP parsers differ. */
export type RuntimeKind = "bun" | "deno" | "node";

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

/** A token with the scope `metrics` alone, which the test app knows. */
export const METRICS_TOKEN = "metrics-token-0123456789";

/** How many plants may wait for a commit in the test app: few enough to fill the queue. */
export const QUEUE_LIMIT = 40;

const TEST_APP_ENV = { AUTH_TOKENS: TOKEN, METRICS_TOKEN, QUEUE_LIMIT: String(QUEUE_LIMIT) };

const KINDS = { Bun: "bun", Deno: "deno", Node: "node" } as const;

/** All that the wire suite runs against. */
export const RUNTIMES: readonly Runtime[] = [
  ...MODULE_RUNTIMES.map(testApp),
  program("the program on SQLite", { skips: () => false, prepare: async () => hostOf(() => startProgram()) }),
  program("the program on PostgreSQL", { skips: skipsCluster, prepare: withCluster }),
];

/** The app over a store in memory. */
function testApp({ name, run, heading }: ModuleRuntime): Runtime {
  const kind = KINDS[heading];
  const program = [...run, `serve_${kind}.ts`];
  const start = (env: Readonly<Record<string, string>> = {}) =>
    startServer({ program, cwd: join(ROOT, "test/runtimes"), env: { ...TEST_APP_ENV, ...env } });
  const skips = () => kind !== "bun" && skipsRuntimes(`the wire suite on ${name}`);
  const runtime = { name, kind, isTestApp: true, skips };
  if (name !== "Node 26") return { ...runtime, prepare: async () => hostOf(() => start()) };
  return { ...runtime, name: `${name} with the packed module`, prepare: () => withPackage(start) };
}

/** Servers that stand on this, or on nothing. */
function hostOf(start: RuntimeHost["start"], host: Partial<AsyncDisposable> = {}): RuntimeHost {
  return { start, [Symbol.asyncDispose]: async () => host[Symbol.asyncDispose]?.() };
}

/** On one runtime the app is that of the package, as it is built: what is packed has to meet all cases, too. */
async function withPackage(start: (env: Record<string, string>) => Promise<RuntimeServer>): Promise<RuntimeHost> {
  const installed = await installPackage();
  const module = join(installed.path, "node_modules/plant-store/dist/module/mod.js");
  const host = { [Symbol.asyncDispose]: async () => installed[Symbol.dispose]() };
  return hostOf(() => start({ MODULE: pathToFileURL(module).href }), host);
}

/** The adapters of a database are Bun's, so it runs on Bun only. */
function program(name: string, host: Pick<Runtime, "skips" | "prepare">): Runtime {
  return { name, kind: "bun", isTestApp: false, ...host };
}

async function withCluster(): Promise<RuntimeHost> {
  const cluster = await startCluster();
  return hostOf(async () => {
    await using stack = new AsyncDisposableStack();
    const { url } = stack.use(await cluster.newDatabase());
    return withStack(stack, stack.use(await startProgram({ DATABASE_URL: url })));
  }, cluster);
}

async function startProgram(env: Readonly<Record<string, string>> = {}): Promise<RuntimeServer> {
  await using stack = new AsyncDisposableStack();
  const { path: cwd } = stack.use(emptyDirectory());
  return withStack(stack, stack.use(await startServer({ cwd, env: { AUTH_TOKENS: TOKEN, ...env } })));
}

/** The server, with all that it stands on. */
function withStack(stack: AsyncDisposableStack, server: RuntimeServer): RuntimeServer {
  const all = stack.move();
  return { ...server, [Symbol.asyncDispose]: () => all.disposeAsync() };
}
