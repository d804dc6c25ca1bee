import { mkdirSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };
import { version } from "../../src/build/version.ts";
import { makeOnce } from "./process_lock.ts";

const ROOT = join(import.meta.dir, "../..");

/** In the checkout, and ignored by Git: what Git removes with `clean -x` is built again. */
const BUILDS = join(ROOT, "dist/test");

/**
 * How long an executable of an older source is kept, in milliseconds. A run of all experiments may
 * be going on, for a quarter of an hour, while somebody edits or commits.
 */
const KEPT_MS = 3_600_000;

let program: readonly [string] | undefined;

/**
 * The executable, by the package's own build script. Tests start it because it starts in a fifth of
 * the time that the source takes. One build serves every test until the source changes.
 */
export function executable(): readonly [string] {
  if (program !== undefined) return program;
  const path = join(BUILDS, digestOfSources());
  mkdirSync(BUILDS, { recursive: true });
  makeOnce(path, buildInto);
  return (program = [join(path, "plant-store")]);
}

function buildInto(directory: string): void {
  removeOldBuilds();
  const command = packageJson.scripts.build
    .replace("dist/plant-store", join(directory, "plant-store"))
    .replace(/^bun /, `"${process.execPath}" `);
  const { exitCode, stderr } = Bun.spawnSync(["sh", "-c", command], { cwd: ROOT });
  if (exitCode !== 0) throw new Error(`The build failed:\n${stderr.toString()}`);
}

function removeOldBuilds(): void {
  for (const name of readdirSync(BUILDS)) {
    const path = join(BUILDS, name);
    const { mtimeMs } = statSync(path);
    if (mtimeMs < Date.now() - KEPT_MS) rmSync(path, { recursive: true, force: true });
  }
}

function digestOfSources(): string {
  const hasher = new Bun.CryptoHasher("sha256").update(Bun.revision).update(version());
  const files = [
    ...new Bun.Glob("{src,drizzle}/**/*").scanSync(ROOT),
    "package.json",
    "bun.lock",
    "tsconfig.json",
  ];
  for (const file of files.toSorted())
    hasher.update(`\n${file}\n`).update(readFileSync(join(ROOT, file)));

  return hasher.digest("hex").slice(0, 16);
}
