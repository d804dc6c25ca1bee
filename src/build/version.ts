import { join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };

const GIT_DIR = join(import.meta.dir, "../../.git");

/**
 * The version of the program. Bun evaluates it while it builds the program
 * (https://bun.com/docs/bundler/macros):
 *
 * - At the tag of the package's version: `1.0.0`;
 * - At any other commit, followed by the commit, and by `.dirty` if there are uncommitted changes:
 *   `1.0.0+de376be.dirty`;
 * - Without Git, the package's version.
 */
export function version(): string {
  const tag = `v${packageJson.version}`;
  const commit = describeCommit(tag);
  return commit === "" || commit === tag ? packageJson.version : `${packageJson.version}+${commit}`;
}

/** The repository is named, so that Git does not find one around an unpacked archive. */
function describeCommit(tag: string): string {
  if (Bun.which("git") === null) return "";
  const repository = [
    "--no-optional-locks",
    `--git-dir=${GIT_DIR}`,
    `--work-tree=${join(GIT_DIR, "..")}`,
  ];
  const format = ["--always", "--tags", "--abbrev=7", "--dirty=.dirty", `--match=${tag}`];
  return Bun.spawnSync(["git", ...repository, "describe", ...format])
    .stdout.toString()
    .trim();
}
