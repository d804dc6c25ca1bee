import { emptyDirectory } from "./program.ts";

/** Whether a small file system of its own can be had here; says so if not, for the tests that skip themselves. */
export function skipsTmpfs(): boolean {
  const can = process.platform === "linux" && process.getuid?.() === 0 && Bun.which("mount") !== null;
  using directory = emptyDirectory();
  const skips = !can || !mountTmpfs(directory.path, "size=1m");
  if (skips) console.warn("Skipped, whatever needs a full disk: a tmpfs cannot be mounted here");
  else Bun.spawnSync(["umount", directory.path]);
  return skips;
}

/** Mounts a file system of its own on a directory, with such options as its size: mount(8). Returns whether it did. */
export function mountTmpfs(path: string, options: string): boolean {
  return Bun.spawnSync(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path]).exitCode === 0;
}
