import { expect } from "bun:test";

import { skipped } from "./missing.ts";
import { emptyDirectory } from "./program.ts";

/** Whether there can be no {@linkcode smallDisk} here. Says so, for the tests that skip themselves. */
export function skipsTmpfs(): boolean {
  const can =
    process.platform === "linux" && process.getuid?.() === 0 && Bun.which("mount") !== null;
  using directory = emptyDirectory();
  if (!can || !mountTmpfs(directory.path, "size=1m"))
    return skipped("whatever needs a full disk: a tmpfs cannot be mounted here");

  Bun.spawnSync(["umount", directory.path]);
  return false;
}

function mountTmpfs(path: string, options: string): boolean {
  return Bun.spawnSync(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path]).exitCode === 0;
}

/**
 * Puts a directory on a small disk until the end of the scope, with such options as its size:
 * mount(8).
 */
export function smallDisk(path: string, options: string): Disposable {
  expect(mountTmpfs(path, options)).toBe(true);
  return { [Symbol.dispose]: () => void Bun.spawnSync(["umount", "--lazy", path]) };
}

/** Takes what space there is on the disk of a file. */
export function fill(file: string): void {
  Bun.spawnSync(["dd", "if=/dev/zero", `of=${file}`, "bs=4k"]);
}

/**
 * A directory on a file system that a command makes in an image of this size, until the end of the
 * scope. `sh` runs a script beside it: there it is called `disk`.
 *
 * @throws {Error} If none can be made or mounted here, or a script fails.
 */
export function imageDisk(size: string, mkfs: string) {
  const home = emptyDirectory();
  const path = home.at("disk");
  const sh = (script: string) => {
    const { exitCode } = Bun.spawnSync(["sh", "-ec", script], { cwd: home.path });
    if (exitCode !== 0) throw new Error(`It failed: ${script}`);
  };

  try {
    sh(`truncate -s ${size} image; ${mkfs} image; mkdir disk; mount -o loop image disk`);
  } catch (error) {
    home[Symbol.dispose]();
    throw error;
  }

  return {
    path,
    sh,
    [Symbol.dispose]() {
      // One that a test has frozen cannot be unmounted.
      Bun.spawnSync(["fsfreeze", "-u", path]);
      Bun.spawnSync(["umount", "--lazy", path]);
      home[Symbol.dispose]();
    },
  };
}
