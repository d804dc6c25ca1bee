import { readFileSync } from "node:fs";
import { dirname } from "node:path";

/** The system calls that {@linkcode lateSyncs} reads. */
export const TRACED =
  "trace=/^(open(at)?|pwrite64|write|ioctl|fsync|mkdir(at)?|link(at)?|rename(at2?)?)$";

/**
 * Names the files and directories whose last fsync was by a descriptor that was opened after a
 * change to them: Linux may have forgotten by then that writing the change failed.
 *
 * @param log Of `strace -f -y`.
 * @param within The path that their names begin with.
 */
export function lateSyncs(log: string, within: string): { synced: string[]; late: string[] } {
  const changed = new Set<string>();
  /** By descriptor: whether its file had changed when it was opened. */
  const wasChanged = new Map<string, boolean>();
  const isLate = new Map<string, boolean>();

  for (const line of readFileSync(log, "utf8").split("\n")) {
    const [, opened = "", path = ""] = /open(?:at)?\b.* = (\d+)<([^>]*)>$/.exec(line) ?? [];
    if (path !== "") wasChanged.set(opened, changed.has(path));

    const [, call = "", descriptor = "", file = ""] = /(\w+)\((\d+)<([^>]*)>/.exec(line) ?? [];
    if (call === "fsync") isLate.set(file, wasChanged.get(descriptor) ?? false);
    else if (call !== "") changed.add(file);

    // A change of an entry is one of the directory.
    if (/\b(?:mkdir|link|rename)/.test(line))
      for (const [, name = ""] of line.matchAll(/"(\/[^"]*)"/g)) changed.add(dirname(name));
  }

  const synced = [...isLate.keys()].filter((file) => file.startsWith(within));
  return { synced, late: synced.filter((file) => isLate.get(file)) };
}
