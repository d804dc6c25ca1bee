import { accessSync, constants, lstatSync, statfsSync, statSync } from "node:fs";
import { basename, dirname } from "node:path";

import { inShell } from "./advice.ts";
import { ownUser, SEES_PROCESS } from "./own_process.ts";
import { foreignFault } from "./trust.ts";

/**
 * Finds out why SQLite cannot write a database or the files beside it, and says what to do. SQLite's own
 * messages are vague: without space for the WAL-index, it reports an I/O error.
 *
 * @param file From {@linkcode databaseFile}.
 * @returns `undefined` if the system shows no cause.
 */
export function storageFault(file: string): string | undefined {
  if (!SEES_PROCESS) return undefined;
  return accessFault(file) ?? accessFaultOf(dirname(file), file) ?? spaceFault(dirname(file));
}

/**
 * Finds out why this process may not write to the existing files of a database.
 *
 * @param file From {@linkcode databaseFile}.
 * @returns `undefined` if it may.
 */
export function accessFault(file: string): string | undefined {
  if (!SEES_PROCESS) return undefined;

  for (const suffix of ["", "-wal", "-shm"]) {
    const fault = accessFaultOf(file + suffix, file);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function accessFaultOf(path: string, file: string): string | undefined {
  try {
    accessSync(path, constants.W_OK);
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EROFS") return READ_ONLY;
    return code === "EACCES" ? ownerFault(path, file) : undefined;
  }
}

const READ_ONLY =
  "its file system is read-only, perhaps since the disk failed: see dmesg, and mount it for writing";

/** Explains why a user other than root may not write to a path. */
function ownerFault(path: string, file: string): string {
  const { uid } = statSync(path);
  if (uid === ownUser()) return `"${path}" is read-only: chmod u+w ${inShell(path)}`;

  const suffix = path.startsWith(file) ? path.slice(file.length) : "";
  if (suffix !== "") return `"${basename(path)}" beside it ${foreignFault(lstatSync(path), file)}`;
  const belongs = `belongs to uid ${uid}; choose another database with --database`;
  // No command to copy: the directory may be /srv, where its owner, such as root, would create a second database.
  return path === file
    ? `it ${belongs}, run this as its owner, or give it to uid ${ownUser()}`
    : `its directory ${belongs}, or give that directory to uid ${ownUser()}`;
}

/** SQLite needs a few pages for the WAL and its index, in bytes. */
const LEAST_BYTES = 65_536;

/** Explains that a file system is full; returns `undefined` if it is not. */
function spaceFault(directory: string): string | undefined {
  // Not `bfree`, which includes reserved blocks.
  const { bavail, bsize, files, ffree } = statfsSync(directory);

  if (bavail * bsize < LEAST_BYTES)
    return `its file system is full: free some space (df -h ${inShell(directory)})`;
  // Some file systems have no fixed number of inodes, and report none.
  if (files > 0 && ffree === 0)
    return `its file system is full: it has no free inode; remove some files (df -i ${inShell(directory)})`;
  return undefined;
}
