import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";

import { ownUser } from "./own_process.ts";
import { databaseFile } from "./path.ts";

/**
 * Changes the user of a root process to the owner of a database, for good. Then new files belong to the owner,
 * and a link that the owner has placed cannot misuse root's rights. If the database does not exist yet, the owner
 * of its directory counts, or of the directory above. Open files that only root may read before this call.
 *
 * @returns The user's name; `undefined` if nothing changed, because the process does not run as root, root owns
 *   the files, or the system refuses. Then the rules for root apply.
 */
export function becomeOwner(path: string): string | undefined {
  if (ownUser() !== 0) return undefined;
  const owner = userOf(ownerOf(path));
  if (owner === undefined || owner.uid === 0) return undefined;

  try {
    // In this order: once it is not root, the process may not change its groups.
    (process as WithInitgroups).initgroups(owner.name, owner.gid);
    process.setgid?.(owner.gid);
    process.setuid?.(owner.uid);
    return owner.name;
  } catch {
    // A container without CAP_SETUID, for example.
    return undefined;
  }
}

/** Bun has `initgroups`, but its types do not. */
interface WithInitgroups extends NodeJS.Process {
  initgroups(user: string, group: number): void;
}

/** Returns the uid of a database's owner; 0 if the path cannot be used, which opening it reports. */
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

/** Finds a user in /etc/passwd: passwd(5). */
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
