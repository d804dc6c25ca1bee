import { readdirSync, readFileSync, statSync } from "node:fs";

import { identityOf } from "./file_identity.ts";
import { SEES_PROCESS } from "./trust.ts";

/**
 * Says which other processes hold a lock of SQLite's on a file: in WAL mode these are all that have it
 * open. proc_locks(5) has the pid and the inode.
 *
 * @param file From `databaseFile`.
 * @returns `plant-store (process 42) has it open`; `undefined` if that cannot be seen.
 */
export function lockHolders(file: string): string | undefined {
  if (!SEES_PROCESS) return undefined;
  const pids = new Set<string>();

  try {
    const { ino } = statSync(file, { bigint: true });
    const lock = new RegExp(`^\\d+: \\S+ +\\S+ +\\S+ +(\\d+) [0-9a-f]+:[0-9a-f]+:${ino} `, "gm");
    for (const [, pid = ""] of readFileSync("/proc/locks", "utf8").matchAll(lock)) pids.add(pid);
  } catch {
    // Not Linux's, or a system without /proc.
  }

  // In another container a process has no number here.
  pids.delete("0");
  pids.delete(String(process.pid));
  const names = [...pids]
    .filter((pid) => hasOpen(pid, file))
    .map((pid) => `${nameOf(pid)} (process ${pid})`);
  if (names.length === 0) return undefined;
  return `${names.join(" and ")} ${names.length === 1 ? "has" : "have"} it open`;
}

/** Whether it is this file: one on another disk may have the same inode. True if that cannot be seen. */
function hasOpen(pid: string, file: string): boolean {
  const identity = identityOf(file);
  const directory = `/proc/${pid}/fd`;
  try {
    return readdirSync(directory).some((fd) => identityOf(`${directory}/${fd}`) === identity);
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
