import { spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync } from "node:fs";
import { join } from "node:path";

/**
 * Has a shell script clean up a directory, when `end` is called or when this process ends, however
 * it ends. So a test run that is killed leaves nothing behind.
 *
 * @param script It removes the directory, which is its `$0`.
 */
export function startReaper(directory: string, script: string) {
  const { status } = spawnSync("sh", ["-c", REAPER.replace("SCRIPT", () => script), directory], {
    stdio: "ignore",
  });
  if (status !== 0) throw new Error(`Cannot start what cleans up ${directory}`);
  const alive = openSync(join(directory, ALIVE), "r+");

  return {
    async end(): Promise<void> {
      closeSync(alive);
      while (existsSync(directory)) await Bun.sleep(5);
    },
  };
}

/** A pipe that has a writer as long as this process is alive. */
const ALIVE = ".alive";

/**
 * The reaper is no child of this process: Bun kills the children of a test that times out. It
 * ignores what ends the tests: Ctrl-C, and the signal of a supervisor to all processes.
 */
const REAPER = `
mkfifo "$0/${ALIVE}" || exit
(
trap "" HUP INT TERM
cat "$0/${ALIVE}"
SCRIPT
) &`;
