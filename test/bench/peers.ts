import { existsSync } from "node:fs";
import { join } from "node:path";
import { ROOT, runToEnd } from "../support/program.ts";
import { type Contender, ELYSIA_DRIZZLE, HONO } from "./contenders.ts";

const ENV = process.env as Record<string, string>;

/** Where Debian puts the sources of Go packages (`golang-github-mattn-go-sqlite3-dev`). */
const GOCODE = "/usr/share/gocode";

/**
 * Installs and builds what runs here on other frameworks and runtimes; what does not is named with its reason.
 *
 * @param directory Where built programs are put.
 */
export async function preparePeers(directory: string): Promise<{ peers: Contender[]; missing: string[] }> {
  await installPeers();
  const built = await go(directory);
  const [others, missing] = typeof built === "string" ? [[], [built]] : [[built], []];
  return { peers: [ELYSIA_DRIZZLE, HONO, ...others], missing };
}

/**
 * Installs the packages of the peers, by their own lock file, unless they are there.
 *
 * @throws {Error} If that fails.
 */
export async function installPeers(): Promise<void> {
  if (existsSync(join(import.meta.dir, "node_modules"))) return;
  const args = ["install", "--frozen-lockfile", "--cwd", import.meta.dir];
  const { exitCode, stdout, stderr } = await runToEnd({ program: [process.execPath], args, cwd: ROOT, env: ENV });
  if (exitCode !== 0) throw new Error(`bun install --frozen-lockfile --cwd test/bench:\n${stdout}${stderr}`);
}

async function go(directory: string): Promise<Contender | string> {
  const compiler = Bun.which("go");
  if (compiler === null) return "Go: there is no go (Debian: apt-get install golang-go)";
  if (!existsSync(join(GOCODE, "src/github.com/mattn/go-sqlite3"))) {
    return "Go: there is no SQLite for it (Debian: apt-get install golang-github-mattn-go-sqlite3-dev)";
  }
  const executable = join(directory, "go-peer");
  const env = { ...ENV, GO111MODULE: "off", GOPATH: GOCODE, GOCACHE: join(directory, "go-cache") };
  const args = ["build", "-tags", "libsqlite3", "-o", executable, join(import.meta.dir, "peers/main.go")];
  const { exitCode, stdout, stderr } = await runToEnd({ program: [compiler], args, cwd: directory, env });
  return exitCode === 0 ? { name: "Go net/http, group commit", program: [executable] } : `Go: ${stdout}${stderr}`;
}
