import { dlopen, FFIType } from "bun:ffi";
import {
  closeSync,
  constants,
  createReadStream,
  createWriteStream,
  existsSync,
  openSync,
  readFileSync,
  statSync,
} from "node:fs";
import {
  copyFile,
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  realpath,
  rename,
  rm,
} from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";

import { withAbort } from "../../async/timers.ts";
import { reasonOf } from "../../errors.ts";
import type { ReadOptions } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import type { BackgroundApi } from "./background_worker.ts";
import { connect } from "./bun_driver.ts";
import { checkFile } from "./check.ts";
import { keepEndedTokens } from "./ended_tokens.ts";
import { withDatabaseError } from "./errors.ts";
import { requireUnmarked } from "./failure.ts";
import {
  COMPANION_SUFFIXES,
  createPrivateFile,
  databaseFile,
  requireNotRoot,
  requireOwner,
  requireTrustedPlace,
  restoreDirectory,
  walBytes,
} from "./files.ts";
import { reasonOfCall, startWorker } from "./worker_calls.ts";

/**
 * Copies a database, as it is at one moment after the call, into a new file, even while a server
 * writes to it. The file appears complete and fsynced, or not at all, and never replaces another
 * one.
 *
 * Copies no file that is marked as corrupt: the copy could be sound, and lack plants. Copies to no
 * path with the files of another database beside it. Removes what killed backups left in the same
 * directory once it is an hour old.
 *
 * @param target An absolute path.
 * @returns The number of plants in the copy; `undefined` if stopped, which leaves no file.
 * @throws {DatabaseError} If the database cannot be read or copied, or is marked as corrupt; if the
 *   target's directory has no hard links, or root makes a backup in another user's.
 * @throws {Error} The system's, if the file is there already or cannot be written.
 */
export async function backupSqlite(
  path: string,
  target: string,
  options: ReadOptions,
): Promise<number | undefined> {
  connect(path, { access: "read" }).close();
  requireSource(path);

  // Without links, which could lead elsewhere in a moment.
  const directory = await realpath(dirname(target));
  const file = join(directory, basename(target));
  requireNotRoot(directory, `Cannot back up to "${target}": its directory`);
  requireNothingBeside(file);

  await using draft = await draftIn(directory);
  const plants = await vacuumInto(path, draft.path, options);
  if (plants === undefined) return undefined;

  // A server may have found corruption during the copy.
  requireSource(path);

  // The backup has the permissions of the database.
  await complete(draft.path, statSync(path).mode);
  requireNothingBeside(file);
  // Unlike a rename, this fails if there is a file by now.
  await link(draft.path, file);
  await fsync(directory);
  return plants;
}

/** VACUUM copies what it can reach: the copy of a corrupt tree is sound, with rows missing. */
function requireSource(path: string): void {
  const advice = "save what can be read: plant-store export; or check it: plant-store check";
  withDatabaseError("copy", path, () => requireUnmarked(path, advice));
}

/**
 * SQLite would take the WAL of an earlier database for that of the copy, and read the older plants.
 */
function requireNothingBeside(target: string): void {
  const left = [`${target}-wal`, `${target}-journal`].find(
    (file) => statSync(file, { throwIfNoEntry: false })?.size,
  );
  if (left === undefined) return;
  throw new DatabaseError(
    `Cannot back up to "${target}": "${left}" of an earlier database is beside it, and may hold plants: choose another file`,
  );
}

const PROGRESS_MS = 200;

/**
 * Copies in a Worker, because VACUUM blocks its thread, and the main thread must receive signals.
 */
async function vacuumInto(path: string, target: string, { stop, onProgress }: ReadOptions) {
  const total = statSync(path).size;
  const copied = () => statSync(target, { throwIfNoEntry: false })?.size ?? 0;
  const reader = startWorker<BackgroundApi>("background");
  const timer = setInterval(() => onProgress({ done: copied(), total }), PROGRESS_MS);

  try {
    return await withAbort(reader.call("copy", path, target), stop);
  } catch (error) {
    throw new DatabaseError(`Cannot copy database "${path}": ${reasonOfCall(error as Error)}`);
  } finally {
    clearInterval(timer);
    // A stopped copy may write for another moment, into a directory that is removed.
    reader.terminate();
  }
}

/**
 * Replaces a database, which may be missing or corrupt, by a copy of a backup. Moves its files into
 * a directory beside it, and deletes none. Moves nothing before the copy is complete, fsynced and
 * sound, nor while another process holds SQLite's lock on the database.
 *
 * After a kill the next restore finishes the rest. Until then there are three states:
 *
 * - the old database is in its place;
 * - the old file is in the directory `plants.db-replacing`, and no server starts;
 * - the restored database is in place, and all old files are in that directory.
 *
 * Every process that uses a database in WAL mode holds a lock on it, in whatever container it runs.
 * A file that no server has opened yet has no WAL. A command that reads it locks it page by page,
 * and reads the old file to its end.
 *
 * @param source The path of the backup, as messages have it.
 * @returns `undefined` if it was stopped.
 * @throws {DatabaseError} If the database is in use, or the backup is not sound or cannot be used
 *   as it is; or if something failed after the first file was moved: then the message says what is
 *   where.
 * @throws {Error} The system's, if something cannot be read or written: then nothing is changed.
 */
export async function restoreSqlite(path: string, source: string, options: ReadOptions) {
  const file = requireUsable(path, resolve(source));
  // Fails early: checking a large backup takes minutes. The move takes the lock again.
  lockOf(file, path)[Symbol.dispose]();

  await using draft = await draftIn(dirname(file));
  const result = await withAbort(copyAndCheck(source, draft.path, options), options.stop);
  if (result === undefined) return undefined;

  await complete(draft.path, modeOf(file));

  using _ = lockOf(file, path);
  const { replaced, tokens } = await replace(file, draft.path, source);
  return { plants: result.plants, bytes: statSync(file).size, replaced, tokens };
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
    requireTrustedPlace(file, "create");
    // The new file will belong to this user.
    requireOwner(file, "it");

    if (existsSync(source) && databaseFile(source) === file)
      throw new DatabaseError("the backup is the database itself");
    return file;
  });
}

const MAKE_BACKUP = "make a backup of that database: plant-store backup";

/** Copies a backup into a draft, and checks the copy: a message names the backup. */
async function copyAndCheck(source: string, draft: string, { onProgress }: ReadOptions) {
  // Absolute, as the path of the draft in a message is.
  const backup = resolve(source);

  await copyInto(draft, backup).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== "EACCES") throw cause;
    throw new DatabaseError(`Cannot restore "${source}": ${UNREADABLE}`, { cause });
  });

  return checkFile(draft, (finding) => `it is corrupt: ${finding}`, onProgress).catch(
    ({ message }: Error) => {
      throw new DatabaseError(`Cannot restore "${source}": ${message.replaceAll(draft, backup)}`);
    },
  );
}

/** The two files share their blocks if the file system can do that. */
async function copyInto(draft: string, backup: string): Promise<void> {
  try {
    await copyFile(backup, draft, constants.COPYFILE_FICLONE);
  } catch (error) {
    // A container's filter of system calls may refuse copy_file_range(2).
    if ((error as NodeJS.ErrnoException).code !== "EPERM") throw error;
    await pipeline(createReadStream(backup), createWriteStream(draft));
  }
}

const UNREADABLE =
  "the user who runs this may not read it; run chown, or make backups as this user";

/** The mode of the database, even in the middle of a restore. */
function modeOf(file: string): number {
  const old = [file, join(restoreDirectory(file), basename(file))].find((path) => existsSync(path));
  return old === undefined ? 0o600 : statSync(old).mode;
}

/**
 * Moves the old files aside, and the draft to their place. Moves the main file first: from then on
 * no server starts. All others follow, because SQLite would take the old WAL for that of the
 * restored file. From then on the old tokens cannot change: those that were ended are ended in the
 * draft.
 *
 * @returns The directory with the old files, and what became of the tokens.
 * @throws {DatabaseError} If a step fails: the message says what is where.
 */
async function replace(file: string, draft: string, source: string) {
  const parent = dirname(file);
  const aside = restoreDirectory(file);
  const kept = `${file}-replaced-${new Date().toISOString().replaceAll(":", "-")}`;
  const moved = `the old files are in "${aside}", and no server starts: run plant-store restore again`;
  let outcome = `Cannot restore "${source}"`;
  let state = !existsSync(file) && existsSync(aside) ? moved : "nothing was changed";

  try {
    // An earlier restore was killed before its last step.
    if (existsSync(file) && existsSync(join(aside, basename(file))))
      await renameDurably(aside, `${kept}-before`);

    const old = ["", ...COMPANION_SUFFIXES]
      .map((suffix) => file + suffix)
      .filter((name) => existsSync(name));
    if (old.length > 0 && !existsSync(aside)) {
      await mkdir(aside, { mode: 0o700 });
      await fsync(parent);
    }

    for (const name of old) {
      await rename(name, join(aside, basename(name)));
      state = moved;
      // A power loss must not bring back the main file without the files beside it.
      if (name === file) await fsync(aside, parent);
    }

    if (existsSync(aside)) await fsync(aside, parent);

    const tokens = keepEndedTokens(draft, join(aside, basename(file)));
    await fsync(draft);

    // Unlike a rename, this fails if there is a file by now.
    await link(draft, file);
    outcome = `Restored "${source}", but a later step failed`;
    state = `old files are in "${aside}" or "${kept}"`;
    await fsync(parent);

    if (!existsSync(aside)) return { replaced: undefined, tokens };
    await renameDurably(aside, kept);
    return { replaced: kept, tokens };
  } catch (cause) {
    throw new DatabaseError(`${outcome}: ${reasonOf(cause)}; ${state}`, { cause });
  }
}

async function renameDurably(from: string, to: string): Promise<void> {
  await rename(from, to);
  await fsync(dirname(to));
}

/** The bytes of a file that SQLite locks: https://www.sqlite.org/fileformat2.html#the_lock_byte_page */
const LOCK_BYTES = { from: 0x4000_0000, count: 512 };
/** From `unistd.h`, on Linux and macOS. */
const SEEK_SET = 0;
const F_TLOCK = 2;

/**
 * Takes SQLite's exclusive lock on a file without SQLite: this locks even a corrupt file, and
 * changes nothing. Until it is released, no process reads or writes the database.
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

  const holders = holdersOf(file);
  lock.dispose();
  throw new DatabaseError(`Cannot replace database "${path}": ${holders}`);
}

/** Says which processes hold a lock on a file: proc_locks(5) has the pid and the inode. */
function holdersOf(file: string): string {
  const { ino } = statSync(file, { bigint: true });
  const pids = new Set<string>();

  try {
    const lock = new RegExp(`^\\d+: \\S+ +\\S+ +\\S+ +(\\d+) [0-9a-f]+:[0-9a-f]+:${ino} `, "gm");
    for (const [, pid = ""] of readFileSync("/proc/locks", "utf8").matchAll(lock)) pids.add(pid);
  } catch {
    // Not Linux's, or a system without /proc.
  }

  // In another container a process has no number here.
  pids.delete("0");
  const names = [...pids].map((pid) => `${nameOf(pid)} (process ${pid})`);
  return names.length === 0
    ? "a process has it open; stop it, and try again"
    : `${names.join(" and ")} has it open; stop it, and try again`;
}

function nameOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return "a program";
  }
}

/**
 * The C library, because Bun and Node.js have no locks of ranges. Its name differs: glibc, musl,
 * macOS.
 */
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

  throw new DatabaseError(
    "Cannot lock the database: this system has no known C library; restore on Linux or macOS",
  );
}

const PREFIX = ".plant-store-backup-";

/** The name of a copy until it is complete. */
const DRAFT = "plants.db";

/**
 * Makes an empty draft: beside the target, because a hard link stays in one file system.
 *
 * @throws {DatabaseError} If the file system has no hard links.
 */
async function draftIn(parent: string) {
  await removeAbandoned(parent);

  await using stack = new AsyncDisposableStack();
  const directory = await mkdtemp(join(parent, PREFIX));
  // One that cannot be removed fails nothing: the next backup or restore removes it.
  stack.defer(() => rm(directory, { recursive: true, force: true }).catch(() => {}));

  const path = join(directory, DRAFT);
  createPrivateFile(path, "");
  await requireHardLinks(path, parent);

  // The caller disposes of it from now on.
  const made = stack.move();
  return { path, [Symbol.asyncDispose]: () => made.disposeAsync() };
}

/** How a file system refuses a hard link that it has not: vfat, FUSE, and SMB. */
const NO_HARD_LINKS = ["EPERM", "ENOSYS", "EOPNOTSUPP", "ENOTSUP"];

/**
 * Links a draft once, before a copy that may take minutes: the link that puts it in place comes
 * last.
 */
async function requireHardLinks(draft: string, parent: string): Promise<void> {
  try {
    await link(draft, `${draft}-link`);
    await rm(`${draft}-link`);
  } catch (cause) {
    if (!NO_HARD_LINKS.includes(String((cause as NodeJS.ErrnoException).code))) throw cause;
    throw new DatabaseError(
      `Cannot write to "${parent}": its file system has no hard links; use another one`,
      {
        cause,
      },
    );
  }
}

/** Gives a complete draft its permissions, and fsyncs it. */
async function complete(draft: string, mode: number): Promise<void> {
  await using file = await open(draft, constants.O_RDONLY | constants.O_NOFOLLOW);
  await file.chmod(mode & 0o777);
  await file.sync();
}

/** After how long without a write a private directory counts as abandoned by a killed backup. */
const ABANDONED_AFTER_MS = 3_600_000;

/**
 * Removes the directories of killed backups and restores: an operator does not notice them, their
 * names are hidden.
 */
async function removeAbandoned(parent: string): Promise<void> {
  for (const entry of await readdir(parent, { withFileTypes: true })) {
    // Not for a link: its target stays untouched.
    if (!entry.isDirectory() || !entry.name.startsWith(PREFIX)) continue;
    // It may be another user's, or its own backup may remove it now: no reason for this backup to
    // fail.
    await removeIfAbandoned(join(parent, entry.name)).catch(() => {});
  }
}

async function removeIfAbandoned(path: string): Promise<void> {
  const files = await readdir(path, { withFileTypes: true });
  // Ours has only the draft and its journal.
  if (!files.every((file) => file.isFile() && file.name.startsWith(DRAFT))) return;

  const stats = await Promise.all(
    [path, ...files.map(({ name }) => join(path, name))].map((entry) => lstat(entry)),
  );
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
