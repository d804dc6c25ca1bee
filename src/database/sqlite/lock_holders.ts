import { readdirSync, readFileSync, readlinkSync, realpathSync, statSync } from "node:fs";
import { basename } from "node:path";

import { identityOf } from "./file_identity.ts";
import { SEES_PROCESS } from "./own_process.ts";

/**
 * Says which other processes hold a lock of SQLite's on a file: in WAL mode these are all that have it
 * open. proc_locks(5) has the pid and the inode.
 *
 * @returns `plant-store (process 42) has it open`; `undefined` if that cannot be seen.
 */
export function lockHolders(path: string): string | undefined {
  if (!SEES_PROCESS) return undefined;

  try {
    const file = realpathSync(path);
    const { ino } = statSync(file, { bigint: true });
    const lock = new RegExp(`^\\d+: \\S+ +\\S+ +\\S+ +(\\d+) [0-9a-f]+:[0-9a-f]+:${ino} `, "gm");
    const found = readFileSync("/proc/locks", "utf8").matchAll(lock);
    const pids = new Set(Array.from(found, ([, pid = ""]) => pid));

    // In another container a process has no number here.
    pids.delete("0");
    pids.delete(String(process.pid));
    const names = [...pids]
      .filter((pid) => hasOpen(pid, file))
      .map((pid) => `${nameOf(pid)} (process ${pid})`);
    if (names.length === 0) return undefined;
    return `${names.join(" and ")} ${names.length === 1 ? "has" : "have"} it open`;
  } catch {
    // Not Linux's, or a system without /proc.
    return undefined;
  }
}

/**
 * Whether a process has this file open: one on another disk may have the same inode. True if that cannot
 * be seen. Looks only at what has the same name: another disk may hang.
 */
function hasOpen(pid: string, file: string): boolean {
  const directory = `/proc/${pid}/fd`;
  const isIt = (path: string) =>
    basename(readlinkSync(path)) === basename(file) && identityOf(path) === identityOf(file);

  try {
    return readdirSync(directory).some((fd) => isIt(`${directory}/${fd}`));
  } catch {
    // Another user's.
    return true;
  }
}

function nameOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return "a program";
  }
}
