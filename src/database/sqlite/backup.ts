import { dlopen, FFIType } from "bun:ffi";
import { closeSync, constants, existsSync, openSync, type Stats, statSync } from "node:fs";
import { chmod, chown, copyFile, link, lstat, mkdir, mkdtemp, open, readdir, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { withAbort } from "../../async/deadline.ts";
import type { ReadOptions } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { connect } from "./connection.ts";
import { withDatabaseError } from "./errors.ts";
import { requireUnmarked } from "./fail_stop.ts";
import { asideOf, BESIDE, databaseFile, walBytes } from "./files.ts";
import { checkFile, startReader } from "./integrity.ts";
import { reasonOf } from "./worker_calls.ts";

/**
 * Copies a database, as it is at one moment after the call, into a new file, even while a server writes to it. The file
 * appears complete and fsynced, or not at all, and never replaces another one.
 *
 * Copies no file that is marked as corrupt: the copy could be sound, and lack plants. Copies to no path with the files
 * of another database beside it. Removes what killed backups left in the same directory once it is an hour old.
 *
 * @param target An absolute path.
 * @returns How many plants the copy has; `undefined` if it was stopped: then there is no file.
 * @throws {DatabaseError} If the database cannot be read or copied, or is marked as corrupt.
 * @throws {Error} The system's, if the file is there already or cannot be written.
 */
export async function backupSqlite(path: string, target: string, options: ReadOptions): Promise<number | undefined> {
  connect(path, { access: "read" }).close();
  requireSource(path);
  requireNothingBeside(target);
  await using draft = await draftIn(dirname(target));
  const plants = await vacuumInto(path, draft.path, options);
  if (plants === undefined) return undefined;
  // A server may have found corruption during the copy.
  requireSource(path);
  // The backup has the permissions of the database.
  await chmod(draft.path, (await stat(path)).mode & 0o777);
  await fsync(draft.path);
  requireNothingBeside(target);
  // Unlike a rename, this fails if there is a file by now.
  await link(draft.path, target);
  await fsync(dirname(target));
  return plants;
}

/** VACUUM copies what it can reach: the copy of a corrupt tree is sound, with rows missing. */
function requireSource(path: string): void {
  const advice = "save what can be read: plant-store export; or check it: plant-store check";
  withDatabaseError("copy", path, () => requireUnmarked(path, advice));
}

/** SQLite would take the WAL of an earlier database for that of the copy, and read the older plants. */
function requireNothingBeside(target: string): void {
  const left = [`${target}-wal`, `${target}-journal`].find((file) => statSync(file, { throwIfNoEntry: false })?.size);
  if (left === undefined) return;
  throw new DatabaseError(`Cannot back up to "${target}": "${left}" of an earlier database is beside it: move it away`);
}

const PROGRESS_MS = 200;

/** Copies in a Worker, because VACUUM blocks its thread, and the main thread must receive signals. */
async function vacuumInto(path: string, target: string, { stop, onProgress }: ReadOptions) {
  const total = statSync(path).size;
  const copied = () => statSync(target, { throwIfNoEntry: false })?.size ?? 0;
  const reader = startReader();
  const timer = setInterval(() => onProgress({ done: copied(), total }), PROGRESS_MS);
  try {
    return await withAbort(reader.call("copy", path, target), stop);
  } catch (error) {
    throw new DatabaseError(`Cannot copy database "${path}": ${reasonOf(error as Error)}`);
  } finally {
    clearInterval(timer);
    // A stopped copy may write for another moment, into a directory that is removed.
    reader.terminate();
  }
}

/**
 * Replaces a database, which may be missing or corrupt, by a copy of a backup. Moves its files into a directory beside
 * it, and deletes none. Moves nothing before the copy is complete, fsynced and sound, nor while another process holds
 * SQLite's lock on the database.
 *
 * After a kill the next restore finishes the rest. Until then the old database is in its place; or the directory
 * `plants.db-replacing` has the old file, and no server starts; or the restored one is in place, and the directory has all
 * old files, but not its final name.
 *
 * Every process that uses a database in WAL mode holds a lock on it, in whatever container it runs. A file that no
 * server has opened yet has no WAL: a command that only reads it locks it only during a page, and reads the old file to
 * its end.
 *
 * @param source The path of the backup, as messages have it.
 * @returns `undefined` if it was stopped.
 * @throws {DatabaseError} If the database is in use, or the backup is not sound or cannot be used as it is.
 * @throws {Error} The system's, if something cannot be read or written.
 */
export async function restoreSqlite(path: string, source: string, options: ReadOptions) {
  const file = requireUsable(path, resolve(source));
  // Fails early: checking a large backup takes minutes. The move takes the lock again.
  lockOf(file, path)[Symbol.dispose]();
  await using draft = await draftIn(dirname(file));
  const result = await withAbort(copyAndCheck(source, draft.path, options), options.stop);
  if (result === undefined) return undefined;
  const owner = ownerOf(file);
  await chown(draft.path, owner.uid, owner.gid);
  await chmod(draft.path, owner.mode & 0o777);
  await fsync(draft.path);
  using _ = lockOf(file, path);
  const replaced = await replace(file, draft.path, owner);
  return { plants: result.plants, bytes: (await stat(file)).size, replaced };
}

/** Requires that a backup can replace a database. Returns the database's file, without links. */
function requireUsable(path: string, source: string): string {
  withDatabaseError("restore", source, () => {
    // The newest plants of a file in use, or of a copy of it, are in the WAL.
    if (walBytes(source) > 0)
      throw new DatabaseError(`it has a WAL beside it ("${basename(source)}-wal"); ${MAKE_BACKUP}`);
    requireUnmarked(source, "use an older backup, or check it: plant-store check");
  });
  return withDatabaseError("replace", path, () => {
    const file = databaseFile(path);
    if (existsSync(source) && databaseFile(source) === file)
      throw new DatabaseError("the backup is the database itself");
    return file;
  });
}

const MAKE_BACKUP = "make a backup of that database: plant-store backup";

async function copyAndCheck(source: string, draft: string, { onProgress }: ReadOptions) {
  // Absolute, as the path of the draft in a message is.
  const backup = resolve(source);
  // The two files share their blocks if the file system can do that.
  await copyFile(backup, draft, constants.COPYFILE_FICLONE);
  return checkFile(draft, "it", onProgress).catch(({ message }: Error) => {
    // The user knows the backup, not its copy.
    throw new DatabaseError(`Cannot restore "${source}": ${message.replaceAll(draft, backup)}`);
  });
}

type Owner = Pick<Stats, "uid" | "gid" | "mode">;

/** The owner of the database, even in the middle of a restore; without a database, the owner of its directory. */
function ownerOf(file: string): Owner {
  const old = [file, join(asideOf(file), basename(file))].map((name) => statSync(name, { throwIfNoEntry: false }));
  return old.find((stats) => stats !== undefined) ?? { ...statSync(dirname(file)), mode: 0o600 };
}

/**
 * Moves the old files aside, and the draft to their place. Moves the main file first: from then on no server starts.
 * All others follow, because SQLite would take the old WAL for that of the restored file.
 *
 * @returns The directory with the old files.
 */
async function replace(file: string, draft: string, owner: Owner): Promise<string | undefined> {
  const [parent, aside] = [dirname(file), asideOf(file)];
  // An earlier restore was killed before its last step.
  if (existsSync(file) && existsSync(join(aside, basename(file)))) await giveFinalName(aside, file);
  const old = ["", ...BESIDE].map((suffix) => file + suffix).filter((name) => existsSync(name));
  if (old.length > 0 && !existsSync(aside)) {
    await mkdir(aside, { mode: 0o700 });
    await chown(aside, owner.uid, owner.gid);
    await fsync(parent);
  }
  for (const name of old) {
    await rename(name, join(aside, basename(name)));
    // A power loss must not bring back the main file without the files beside it.
    if (name === file) await fsync(aside, parent);
  }
  if (existsSync(aside)) await fsync(aside, parent);
  // Unlike a rename, this fails if there is a file by now.
  await link(draft, file);
  await fsync(parent);
  return existsSync(aside) ? giveFinalName(aside, file) : undefined;
}

async function giveFinalName(aside: string, file: string): Promise<string> {
  const name = `${file}-replaced-${new Date().toISOString().replaceAll(":", "-")}`;
  await rename(aside, name);
  await fsync(dirname(file));
  return name;
}

/** The bytes of a file that SQLite locks: https://www.sqlite.org/fileformat2.html#the_lock_byte_page */
const LOCK_BYTES = { from: 0x4000_0000, count: 512 };
/** From `unistd.h`, on Linux and macOS. */
const [SEEK_SET, F_TLOCK] = [0, 2];

/**
 * Takes SQLite's exclusive lock on a file without SQLite: this locks even a corrupt file, and changes nothing. Until it
 * is released, no process reads or writes the database.
 *
 * @returns The lock, to be disposed of. Without a file it locks nothing.
 * @throws {DatabaseError} If another process has the database open.
 */
function lockOf(file: string, path: string): Disposable {
  const lock = new DisposableStack();
  if (!existsSync(file)) return lock;
  const { lseek, lockf } = systemLibrary();
  const descriptor = openSync(file, "r+");
  // Closing a descriptor releases all locks of the process on the file.
  lock.defer(() => closeSync(descriptor));
  lseek(descriptor, LOCK_BYTES.from, SEEK_SET);
  if (lockf(descriptor, F_TLOCK, LOCK_BYTES.count) === 0) return lock;
  lock.dispose();
  throw new DatabaseError(`Cannot replace database "${path}": a process has it open; stop the server, and try again`);
}

/** The C library, because Bun and Node.js have no locks of ranges. Its name differs: glibc, musl, macOS. */
function systemLibrary() {
  const musl = `libc.musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`;
  for (const name of ["libc.so.6", musl, "libSystem.B.dylib"]) {
    try {
      return dlopen(name, {
        lseek: { args: [FFIType.i32, FFIType.i64, FFIType.i32], returns: FFIType.i64 },
        lockf: { args: [FFIType.i32, FFIType.i32, FFIType.i64], returns: FFIType.i32 },
      }).symbols;
    } catch {
      // It is one of the others.
    }
  }
  throw new DatabaseError("Cannot lock the database: this system has no known C library; restore on Linux or macOS");
}

const PREFIX = ".plant-store-backup-";

/** The name of a copy until it is complete. */
const DRAFT = "plants.db";

/** Makes room for a draft: beside the target, because a hard link stays in one file system. */
async function draftIn(parent: string) {
  await removeAbandoned(parent);
  const directory = await mkdtemp(join(parent, PREFIX));
  return {
    path: join(directory, DRAFT),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}

/** After how long without a write a private directory counts as abandoned by a killed backup. */
const ABANDONED_AFTER_MS = 3_600_000;

/** Removes the directories of killed backups and restores: an operator does not notice them, their names are hidden. */
async function removeAbandoned(parent: string): Promise<void> {
  for (const entry of await readdir(parent, { withFileTypes: true })) {
    // Not for a link: its target stays untouched.
    if (!entry.isDirectory() || !entry.name.startsWith(PREFIX)) continue;
    // It may be another user's, or its own backup may remove it now: no reason for this backup to fail.
    await removeIfAbandoned(join(parent, entry.name)).catch(() => {});
  }
}

async function removeIfAbandoned(path: string): Promise<void> {
  const files = await readdir(path, { withFileTypes: true });
  // Ours has only the draft and its journal.
  if (!files.every((file) => file.isFile() && file.name.startsWith(DRAFT))) return;
  const stats = await Promise.all([path, ...files.map(({ name }) => join(path, name))].map((entry) => lstat(entry)));
  const touchedAt = Math.max(...stats.map(({ mtimeMs }) => mtimeMs));
  if (touchedAt < Date.now() - ABANDONED_AFTER_MS) await rm(path, { recursive: true });
}

/** Fsyncs files, or the entries of directories, one after the other. */
async function fsync(...paths: string[]): Promise<void> {
  for (const path of paths) {
    await using file = await open(path);
    await file.sync();
  }
}
