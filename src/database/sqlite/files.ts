// Checks a database's files before SQLite opens any: SQLite would start with an empty database or WAL.
import { closeSync, existsSync, openSync, statSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { basename, dirname } from "node:path";

import { sleepSync } from "../../async/timers.ts";
import type { DatabaseAccess } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { howToRunOn } from "./advice.ts";
import { requireUnmarked } from "./markers.ts";
import { databaseFile, RESTORE_SUFFIX, walFileBytes } from "./path.ts";
import { accessFault, storageFault } from "./storage_fault.ts";
import { readTrusted, requireTrustedPlace } from "./trust.ts";

/**
 * Requires that the files of a database can be used, before SQLite opens any. Creates the database
 * file for the access `create`.
 *
 * @param file From {@linkcode databaseFile}.
 * @throws {DatabaseError} If a file cannot be used. The message names it.
 */
export function requireFiles(file: string, access: DatabaseAccess): void {
  if (access !== "read") requireSound(file);
  requireTrustedPlace(file, access);
  requireNoLeftovers(file);
  if (access === "create") createDatabaseFile(file);
  requireDatabaseFile(file, access);
  if (access === "read") return;
  // If a file is read-only and there is a WAL, SQLite would open the database for reading, and fail at
  // the first write.
  const fault = accessFault(file);
  if (fault !== undefined) throw new DatabaseError(fault);
}

/**
 * Requires that a database could be created or written. Changes nothing.
 *
 * @param file From {@linkcode databaseFile}.
 * @throws {DatabaseError} If it could not.
 */
export function requireWritableFiles(file: string): void {
  requireSound(file);
  requireTrustedPlace(file, "create");
  requireNoLeftovers(file);
  if (existsSync(file)) requireDatabaseFile(file, "create");
  const fault = storageFault(file);
  if (fault !== undefined) throw new DatabaseError(fault);
}

/** Refuses a path that is marked as corrupt, even if it has no file: only the marker is left to tell. */
function requireSound(file: string): void {
  requireUnmarked(file, () => `restore a backup, or ${howToRunOn("check", file)}`);
}

/** Refuses a missing or empty file with files of an earlier database beside it: they may hold plants. */
function requireNoLeftovers(file: string): void {
  const isEmpty = () => !statSync(file, { throwIfNoEntry: false })?.size;

  // Otherwise a server would create an empty database during a restore. node:sqlite also creates a file
  // that was moved away since it was checked.
  const aside = file + RESTORE_SUFFIX;
  if (isEmpty() && existsSync(aside)) {
    throw new DatabaseError(
      `a restore is running, or was interrupted, and its old files are in "${basename(aside)}": wait for it, or ${howToRunOn("restore BACKUP", file)}`,
    );
  }

  // SQLite removes the WAL of a missing or empty file, and with it the newest plants. Check the WAL first:
  // a process that creates a database writes to the file before it writes to the WAL.
  if (walFileBytes(file) > 0 && isEmpty()) {
    throw new DatabaseError(
      `"${basename(file)}-wal" holds plants of a file that is not there: never move or delete it; put that file back beside it, or restore a backup, which keeps it`,
    );
  }

  requireWal(file);
}

/** Requires that there is a database file. */
function requireDatabaseFile(file: string, access: DatabaseAccess): void {
  const stats = statSync(file, { throwIfNoEntry: false });
  if (stats === undefined) throw new DatabaseError(isMissing(file, access));
  if (!stats.isFile()) throw new DatabaseError("it is not a file");
}

/** Advises to mount the disk first: mounted later, it would hide a database below its mount point. */
function isMissing(file: string, access: DatabaseAccess): string {
  return access === "read"
    ? "there is no such file; choose another with --database"
    : `there is no such file: mount its disk, or choose another with --database; for a new database ${howToRunOn("migrate", file)}`;
}

/**
 * Requires the WAL of a file that has no tables of its own, because SQLite would treat that file as an
 * empty database.
 *
 * @throws {DatabaseError} If the WAL is missing.
 */
function requireWal(file: string): void {
  // Another process may be creating the database, and create the WAL next.
  for (let attempt = 0; !existsSync(`${file}-wal`) && isEmptyInWalMode(file); attempt++) {
    if (attempt === WAL_ATTEMPTS) throw new DatabaseError(walIsMissing(basename(file)));
    sleepSync(WAL_PAUSE_MS);
  }
}

const WAL_ATTEMPTS = 50;
const WAL_PAUSE_MS = 10;

function walIsMissing(name: string): string {
  return `its WAL is missing, and with it all that was stored: put "${name}-wal" back beside it, or restore a backup; if nothing was ever stored, move "${name}" away`;
}

/** SQLite's default page size, in bytes. A file with our tables has several pages. */
const PAGE_BYTES = 4_096;
/** The header for that page size and WAL mode: https://www.sqlite.org/fileformat2.html#the_database_header */
const HEADER = "SQLite format 3\0\x10\0\x02\x02";

/** Reports whether a file has only its first page, so that our tables can only be in the WAL. */
export function isOnePage(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.size === PAGE_BYTES;
}

/** Reports whether a file without a WAL was left in WAL mode with one page. No process has it open. */
function isEmptyInWalMode(file: string): boolean {
  return (
    isOnePage(file) &&
    // With a journal, the first write was interrupted, and SQLite rolls it back.
    !existsSync(`${file}-journal`) &&
    isInWalMode(file)
  );
}

/**
 * Reports whether a file's header says WAL mode. No connection of this process may have the file open,
 * because closing it drops the locks of the process.
 */
export function isInWalMode(file: string): boolean {
  return readTrusted(file, "", HEADER.length) === HEADER;
}

/**
 * Creates a file that only its owner can access. SQLite gives the files beside it the same mode.
 *
 * Bun's `writeFileSync` truncates the file after creating it. By then another process may have created
 * the database, and SQLite would remove the WAL of the truncated file.
 */
function createDatabaseFile(file: string): void {
  try {
    closeSync(openSync(file, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

/**
 * Warns of a network file system. Its locks may fail, and machines that open the same file share no
 * memory for the WAL-index: https://www.sqlite.org/wal.html
 *
 * @returns `undefined` if the file system is local or cannot be queried. Opening the file reports why.
 */
export async function placeFault(path: string): Promise<string | undefined> {
  try {
    const { type } = await statfs(dirname(databaseFile(path)));
    const name = NETWORK_FILE_SYSTEMS[type >>> 0];
    return name && `it is on ${name}, where ${CAN_BE_CORRUPTED}`;
  } catch {
    return undefined;
  }
}

/** The names by the magic numbers of Linux: statfs(2). */
const NETWORK_FILE_SYSTEMS: Readonly<Record<number, string>> = {
  0x6969: "NFS",
  0x517b: "SMB",
  0xff534d42: "SMB",
  0xfe534d42: "SMB",
  0x01021997: "9p",
};

const CAN_BE_CORRUPTED =
  "SQLite's locks may fail and the database become corrupt: use a local disk, or PostgreSQL";
