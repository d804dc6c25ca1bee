import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { processLock } from "./process_lock.ts";

const ROOT = join(import.meta.dir, "../..");

/** In the checkout, and ignored by Git: what Git removes with `clean -x` is built again. */
const BUILDS = join(ROOT, "dist/test");

/** What the executable is made of. */
const SOURCES = ["src", "drizzle", "package.json", "bun.lock", "tsconfig.json"];

/** How long an executable of an older source is kept: a run may be going on while somebody edits. */
const KEPT_MS = 600_000;

let program: readonly [string] | undefined;

/**
 * The executable, by the package's own build script. It starts in a fifth of the time that the source takes, so it is
 * what tests start; one build serves every test until the source changes.
 */
export function executable(): readonly [string] {
  program ??= [join(buildOf(digestOfSources()), "plant-store")];
  return program;
}

/** Test files run in several processes: one of them builds, and the others wait for it. */
function buildOf(digest: string): string {
  const path = join(BUILDS, digest);
  if (existsSync(path)) return path;
  mkdirSync(BUILDS, { recursive: true });
  using _ = processLock(join(BUILDS, "lock.db"));
  if (!existsSync(path)) buildInto(path);
  return path;
}

function buildInto(path: string): void {
  removeOldBuilds();
  const directory = `${path}.partial`;
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
  const command = packageJson.scripts.build
    .replace("dist/plant-store", join(directory, "plant-store"))
    .replace(/^bun /, `"${process.execPath}" `);
  const { exitCode, stderr } = Bun.spawnSync(["sh", "-c", command], { cwd: ROOT });
  if (exitCode !== 0) throw new Error(`The build failed:\n${stderr.toString()}`);
  renameSync(directory, path);
}

function removeOldBuilds(): void {
  for (const name of readdirSync(BUILDS)) {
    const path = join(BUILDS, name);
    const { mtimeMs } = statSync(path);
    if (!name.startsWith("lock.db") && mtimeMs < Date.now() - KEPT_MS) rmSync(path, { recursive: true, force: true });
  }
}

function digestOfSources(): string {
  const hasher = new Bun.CryptoHasher("sha256").update(Bun.revision);
  for (const name of SOURCES) {
    for (const file of filesOf(join(ROOT, name))) hasher.update(`\n${file}\n`).update(readFileSync(file));
  }
  return hasher.digest("hex").slice(0, 16);
}

function filesOf(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path];
  const entries = readdirSync(path, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted();
}
