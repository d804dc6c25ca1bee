import { cpSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

import { emptyDirectory, ROOT } from "./program.ts";

/** One change to the source: a text that occurs exactly once in a file, and what takes its place. */
export interface Mutation {
  /** From the repository's root. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/**
 * A copy of the repository with a bug in it, to the end of the scope.
 *
 * @throws {Error} If a mutation no longer fits the source.
 */
export function mutant(mutations: readonly Mutation[]) {
  const directory = repositoryCopy();
  for (const mutation of mutations) mutate(directory.path, mutation);
  /** The program, from its changed source. */
  const program = [process.execPath, join(directory.path, "src/main.ts")];
  return { ...directory, program };
}

/** A copy of the repository with its dependencies, to the end of the scope. */
export function repositoryCopy() {
  const directory = emptyDirectory();
  for (const name of readdirSync(ROOT).filter(isOurs)) {
    cpSync(join(ROOT, name), join(directory.path, name), { recursive: true, filter: isOurs });
  }
  symlinkSync(join(ROOT, "node_modules"), join(directory.path, "node_modules"));
  return directory;
}

/**
 * The other runtimes and the generators of clients have 700 MB, which no copy needs. While another
 * test builds the executable, Bun has a file here, which is gone a moment later.
 */
function isOurs(path: string): boolean {
  const name = basename(path);
  return ![".git", "dist", "node_modules"].includes(name) && !name.endsWith(".bun-build");
}

/**
 * Changes a file of a copy.
 *
 * @throws {Error} If the text does not occur exactly once.
 */
export function mutate(root: string, { file, from, to }: Mutation): void {
  const path = join(root, file);
  const source = readFileSync(path, "utf8");
  const times = source.split(from).length - 1;

  if (times !== 1)
    throw new Error(`Cannot mutate ${file}: expected once, found ${times} times: ${from}`);
  writeFileSync(
    path,
    source.replace(from, () => to),
  );
}
