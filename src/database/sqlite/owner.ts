import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";

import { ownUser } from "./own_process.ts";
import { databaseFile } from "./path.ts";

/**
 * Makes root's process one of the user who owns a database, for good: its files belong to that user,
 * and a link that the user has put there leads root nowhere. For a database that does not exist yet,
 * the owner of its directory counts, or of the directory above. What only root may read has to be open
 * before.
 *
 * @returns The user's name; `undefined` if the process stays as it is: it is not root's, the files
 *   are root's, or the system refuses. Then the rules for root apply.
 */
export function becomeOwner(path: string): string | undefined {
  if (ownUser() !== 0) return undefined;
  const owner = userOf(ownerOf(path));
  if (owner === undefined || owner.uid === 0) return undefined;

  try {
    // The order matters: the user may not change the groups.
    (process as WithInitgroups).initgroups(owner.name, owner.gid);
    process.setgid?.(owner.gid);
    process.setuid?.(owner.uid);
    return owner.name;
  } catch {
    // A container without CAP_SETUID, for example.
    return undefined;
  }
}

/** Bun has it, and its types do not. */
interface WithInitgroups extends NodeJS.Process {
  initgroups(user: string, group: number): void;
}

/** The uid of a database's owner; 0 if its path cannot be used: opening it says why. */
export function ownerOf(path: string): number {
  try {
    const directory = dirname(path);
    if (!existsSync(directory)) return statSync(dirname(directory)).uid;
    const file = databaseFile(path);
    return statSync(existsSync(file) ? file : dirname(file)).uid;
  } catch {
    return 0;
  }
}

/** A user of this machine: passwd(5). */
export function userOf(user: number): { name: string; uid: number; gid: number } | undefined {
  for (const line of users().split("\n")) {
    const [name = "", , uid, gid] = line.split(":");
    if (uid === String(user)) return { name, uid: user, gid: Number(gid) };
  }
  return undefined;
}

function users(): string {
  try {
    return readFileSync("/etc/passwd", "utf8");
  } catch {
    // A container without users, for example.
    return "";
  }
}
