import { existsSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../support/program.ts";
import { type Contender, ELYSIA_DRIZZLE, HONO } from "./contenders.ts";
import { stop } from "./run_load.ts";

/** Where Debian puts the sources of Go packages (`golang-github-mattn-go-sqlite3-dev`). */
const GOCODE = "/usr/share/gocode";

/** The programs on other frameworks and runtimes. */
export interface Peers {
  readonly contenders: readonly Contender[];
  /** What cannot run here, and why. */
  readonly missing: readonly string[];
}

/**
 * Installs and builds what runs here; what does not is named with its reason.
 *
 * @param directory Where built programs are put.
 */
export async function preparePeers(directory: string): Promise<Peers> {
  await installPeers();
  const found = [ELYSIA_DRIZZLE, HONO, await go(directory)];
  const contenders = found.filter((peer) => typeof peer !== "string");
  const missing = found.filter((peer) => typeof peer === "string");
  return { contenders, missing };
}

/**
 * Installs the packages of the peers, by their own lock file, unless they are there.
 *
 * @throws {Error} If that fails.
 */
export async function installPeers(): Promise<void> {
  if (existsSync(join(import.meta.dir, "node_modules"))) return;
  const command = [process.execPath, "install", "--frozen-lockfile", "--cwd", import.meta.dir];
  const { exitCode, output } = await run(command, ROOT);
  if (exitCode !== 0) throw new Error(`bun install --frozen-lockfile --cwd test/bench:\n${output}`);
}

async function go(directory: string): Promise<Contender | string> {
  const compiler = Bun.which("go");
  if (compiler === null) return "Go: there is no go (Debian: apt-get install golang-go)";
  if (!existsSync(join(GOCODE, "src/github.com/mattn/go-sqlite3"))) {
    return "Go: there is no SQLite for it (Debian: apt-get install golang-github-mattn-go-sqlite3-dev)";
  }
  const executable = join(directory, "go-peer");
  const cache = { GO111MODULE: "off", GOPATH: GOCODE, GOCACHE: join(directory, "go-cache") };
  const build = [compiler, "build", "-tags", "libsqlite3", "-o", executable, join(import.meta.dir, "peers/main.go")];
  const { exitCode, output } = await run(build, directory, cache);
  return exitCode === 0 ? { name: "Go net/http, group commit", program: [executable] } : `Go: ${output}`;
}

async function run(command: string[], cwd: string, env: Record<string, string> = {}) {
  const child = Bun.spawn(command, {
    cwd,
    env: { ...process.env, ...env },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
    signal: stop.signal,
  });
  const [stdout, stderr] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  return { exitCode: await child.exited, output: stdout + stderr };
}
