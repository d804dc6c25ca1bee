import { dlopen, FFIType } from "bun:ffi";
import { closeSync, constants, existsSync, openSync, realpathSync, type Stats, statSync } from "node:fs";
import { chmod, chown, copyFile, link, mkdir, rename, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { withAbort } from "../../async/deadline.ts";
import type { CheckOptions, RestoreResult } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { DRAFT, fsync, privateDirectory, removeAbandoned } from "./backup.ts";
import { requireUnmarked } from "./corruption.ts";
import { toDatabaseError } from "./errors.ts";
import { asideOf, BESIDE, databaseFile, walBytes } from "./files.ts";
import { checkFile } from "./integrity.ts";

/**
 * Puts a copy of a backup in the place of a database, which may be missing or corrupt. Its files are moved into a directory
 * beside it, and none is deleted. Nothing is moved before the copy is complete, fsynced and found sound, nor while another
 * process holds SQLite's lock on the database.
 *
 * A kill leaves one of these, and the next restore finishes it:
 * - The old database is in its place.
 * - The database's path is empty; the directory `plants.db-replacing` has the old file, and takes the rest. No server starts.
 * - The restored database is in its place, and the directory, with all old files, waits for its last name.
 *
 * Every process that uses a database in WAL mode keeps a lock on it, whatever container it runs in. A file that no server
 * has opened yet has no WAL: there a command that only reads is seen while it reads a page, and reads the old file to its end.
 *
 * @param source The backup, as an absolute path.
 * @throws {DatabaseError} If the database is in use, or the backup cannot be used as it is.
 * @throws {Error} The system's, if something cannot be read or written.
 */
export async function restoreSqlite(path: string, source: string, options: CheckOptions): Promise<RestoreResult> {
  const file = requireUsable(path, source);
  // A check takes minutes if the backup is large. The lock is taken again for the move.
  lockOf(file, path)[Symbol.dispose]();
  await removeAbandoned(dirname(file));
  await using directory = await privateDirectory(dirname(file));
  const draft = join(directory.path, DRAFT);
  // Where the file system can share the blocks of both, it does.
  const result = await withAbort(copyAndCheck(source, draft, options), options.stop);
  if (result?.type !== "sound") return result ?? { type: "stopped" };
  const owner = ownerOf(file);
  await chown(draft, owner.uid, owner.gid);
  await chmod(draft, owner.mode & 0o777);
  await fsync(draft);
  using _ = lockOf(file, path);
  const replaced = await replace(file, draft, owner);
  return { type: "restored", plants: result.plants, bytes: (await stat(file)).size, replaced };
}

/** The database's file, without links. */
function requireUsable(path: string, source: string): string {
  try {
    // The newest plants of a file that is in use, or was copied from one, are in its WAL.
    if (walBytes(source) > 0)
      throw new DatabaseError(`it has a WAL beside it ("${basename(source)}-wal"); ${MAKE_BACKUP}`);
    requireUnmarked(source, "use an older backup, or check it: plant-store check");
  } catch (error) {
    throw toDatabaseError("restore", source, error);
  }
  try {
    const file = databaseFile(path);
    if (existsSync(file) && existsSync(source) && realpathSync(source) === file)
      throw new DatabaseError("the backup is the database itself");
    return file;
  } catch (error) {
    throw toDatabaseError("replace", path, error);
  }
}

const MAKE_BACKUP = "make a backup of that database: plant-store backup";

async function copyAndCheck(source: string, draft: string, { onProgress }: CheckOptions) {
  await copyFile(source, draft, constants.COPYFILE_FICLONE);
  const result = await checkFile(draft, onProgress);
  // The user knows the backup, and not its copy.
  return result.type === "failed" ? { ...result, reason: result.reason.replaceAll(draft, source) } : result;
}

type Owner = Pick<Stats, "uid" | "gid" | "mode">;

/** Whom the database belongs to, even half-way through a restore; without one, the owner of its directory. */
function ownerOf(file: string): Owner {
  const old = [file, join(asideOf(file), basename(file))].map((name) => statSync(name, { throwIfNoEntry: false }));
  return old.find((stats) => stats !== undefined) ?? { ...statSync(dirname(file)), mode: 0o600 };
}

/**
 * Moves the old files aside, and the draft to their place. The main file goes first: from then on no server starts. Its
 * WAL would be taken for the restored file's.
 *
 * @returns The directory that has the old files.
 */
async function replace(file: string, draft: string, owner: Owner): Promise<string | undefined> {
  const [parent, aside] = [dirname(file), asideOf(file)];
  // An earlier restore was killed before its last step.
  if (existsSync(file) && existsSync(join(aside, basename(file)))) await giveLastName(aside, file);
  const old = ["", ...BESIDE].map((suffix) => file + suffix).filter((name) => existsSync(name));
  if (old.length > 0 && !existsSync(aside)) {
    await mkdir(aside, { mode: 0o700 });
    await chown(aside, owner.uid, owner.gid);
    await fsync(parent);
  }
  for (const name of old) {
    await rename(name, join(aside, basename(name)));
    // A power loss does not bring back the main file without what was beside it.
    if (name === file) await fsyncBoth(aside, parent);
  }
  if (existsSync(aside)) await fsyncBoth(aside, parent);
  // Unlike a rename this fails if there is a file by now.
  await link(draft, file);
  await fsync(parent);
  return existsSync(aside) ? giveLastName(aside, file) : undefined;
}

async function fsyncBoth(aside: string, parent: string): Promise<void> {
  await fsync(aside);
  await fsync(parent);
}

async function giveLastName(aside: string, file: string): Promise<string> {
  const name = `${file}-replaced-${new Date().toISOString().replaceAll(":", "-")}`;
  await rename(aside, name);
  await fsync(dirname(file));
  return name;
}

/** Where SQLite's locks are in a file, in bytes: https://www.sqlite.org/fileformat2.html#the_lock_byte_page */
const LOCK_BYTES = { from: 0x4000_0000, count: 512 };
/** Of `unistd.h`, on Linux and macOS. */
const [SEEK_SET, F_TLOCK] = [0, 2];

/**
 * Takes SQLite's exclusive lock on a file, of which SQLite itself reads nothing here: a file that is not sound can be locked,
 * too, and none is changed. While it is held no process reads or writes the database.
 *
 * @returns What releases the lock. Nothing is locked if there is no file.
 * @throws {DatabaseError} If another process has the database open.
 */
function lockOf(file: string, path: string): Disposable {
  if (!existsSync(file)) return { [Symbol.dispose]: () => {} };
  const descriptor = openSync(file, "r+");
  const { symbols, close } = systemLibrary();
  const release = () => {
    // POSIX releases every lock of a process on a file when it closes any descriptor of it.
    closeSync(descriptor);
    close();
  };
  symbols.lseek(descriptor, LOCK_BYTES.from, SEEK_SET);
  if (symbols.lockf(descriptor, F_TLOCK, LOCK_BYTES.count) === 0) return { [Symbol.dispose]: release };
  release();
  throw new DatabaseError(`Cannot replace database "${path}": a process has it open; stop the server, and try again`);
}

/** The C library; Bun and Node.js have no locks of ranges. Its name differs: glibc, musl, macOS. */
function systemLibrary() {
  const musl = `libc.musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`;
  for (const name of ["libc.so.6", musl, "libSystem.B.dylib"]) {
    try {
      return dlopen(name, {
        lseek: { args: [FFIType.i32, FFIType.i64, FFIType.i32], returns: FFIType.i64 },
        lockf: { args: [FFIType.i32, FFIType.i32, FFIType.i64], returns: FFIType.i32 },
      });
    } catch {
      // It is one of the others.
    }
  }
  throw new DatabaseError("Cannot lock the database: this system has no known C library; restore on Linux or macOS");
}
