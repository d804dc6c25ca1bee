// Whether a database and its WAL are there, before SQLite opens anything: SQLite would begin without them.
import { closeSync, existsSync, openSync, statSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { basename, dirname } from "node:path";

import { sleepSync } from "../../async/timers.ts";
import type { DatabaseAccess } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { howToRunOn } from "./advice.ts";
import { requireUnmarked } from "./markers.ts";
import { databaseFile, restoreDirectory, walFileBytes } from "./path.ts";
import { accessFault, storageFault } from "./storage_fault.ts";
import { readTrusted, requireTrustedPlace } from "./trust.ts";

/**
 * Requires that the files of a database can be used, before SQLite opens any. Creates the database
 * file for the access `create`.
 *
 * @param file From {@linkcode databaseFile}.
 * @throws {DatabaseError} If one cannot be used: the message names it.
 */
export function requireFiles(file: string, access: DatabaseAccess): void {
  if (access !== "read") requireSound(file);
  requireTrustedPlace(file, access);
  requireNoLeftovers(file);
  if (access === "create") createDatabaseFile(file);
  requireDatabaseFile(file, access);
  if (access === "read") return;
  // Otherwise, if there is a WAL, SQLite would open the file for reading, and fail at the first
  // write.
  const fault = accessFault(file);
  if (fault !== undefined) throw new DatabaseError(fault);
}

/**
 * Requires that a database could be created or written, and changes nothing.
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

/** Before a file is created: nothing else says that the one that was here is corrupt. */
function requireSound(file: string): void {
  requireUnmarked(file, () => `restore a backup, or ${howToRunOn("check", file)}`);
}

/** Requires that nothing of an earlier database is beside a file: it may hold plants. */
function requireNoLeftovers(file: string): void {
  const isEmpty = () => !statSync(file, { throwIfNoEntry: false })?.size;

  // A server would create an empty database in the middle of a restore. node:sqlite creates a file
  // that has been moved since it was found.
  const aside = restoreDirectory(file);
  if (isEmpty() && existsSync(aside)) {
    throw new DatabaseError(
      `a restore is running, or was interrupted, and its old files are in "${basename(aside)}": wait for it, or ${howToRunOn("restore BACKUP", file)}`,
    );
  }

  // SQLite removes the WAL of a file that is missing or empty, and with it the plants that are only
  // there. Looks at the WAL first: whoever creates a database has written to the file before.
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

/** The disk comes first: once it is mounted, it hides what was stored below its mount point. */
function isMissing(file: string, access: DatabaseAccess): string {
  return access === "read"
    ? "there is no such file; choose another with --database"
    : `there is no such file: mount its disk, or choose another with --database; for a new database ${howToRunOn("migrate", file)}`;
}

/**
 * Requires that the WAL of a file is there if all that was stored can only be in the WAL. SQLite
 * would take the file for an empty database.
 *
 * @throws {DatabaseError} If it is missing.
 */
function requireWal(file: string): void {
  // Another process may be creating the database at this moment: the WAL comes next.
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

/** A page as SQLite makes it: with our tables a file has several. */
const PAGE_BYTES = 4_096;
/** With that page size, in WAL mode: https://www.sqlite.org/fileformat2.html#the_database_header */
const HEADER = "SQLite format 3\0\x10\0\x02\x02";

/** Whether a file has begun, and has no tables of ours outside of its WAL. */
export function isOnePage(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.size === PAGE_BYTES;
}

/** Of a file whose WAL is missing: so no process has it open. */
function isEmptyInWalMode(file: string): boolean {
  return (
    isOnePage(file) &&
    // The first write was interrupted, and SQLite undoes it.
    !existsSync(`${file}-journal`) &&
    isInWalMode(file)
  );
}

/**
 * Reads the header of a file that no connection of this process has open in WAL mode: closing it
 * drops the locks of this process.
 */
export function isInWalMode(file: string): boolean {
  return readTrusted(file, "", HEADER.length) === HEADER;
}

/**
 * Accessible to its owner only. SQLite gives the files beside it the same mode.
 *
 * Bun's `writeFileSync` would truncate the file after it has created it. Another process may have
 * begun the database by then, and SQLite removes the WAL of an empty file.
 */
function createDatabaseFile(file: string): void {
  try {
    closeSync(openSync(file, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

/**
 * Names the network file system that a database is on. Its locks may fail, and another machine that
 * opens the file shares no memory with this one: https://www.sqlite.org/wal.html
 *
 * @returns `undefined` if it is on none, or if that cannot be known: opening it says why.
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

/** By their numbers in Linux: statfs(2). */
const NETWORK_FILE_SYSTEMS: Readonly<Record<number, string>> = {
  0x6969: "NFS",
  0x517b: "SMB",
  0xff534d42: "SMB",
  0xfe534d42: "SMB",
  0x01021997: "9p",
};

const CAN_BE_CORRUPTED =
  "SQLite's locks may fail and the database become corrupt: use a local disk, or PostgreSQL";
