import { chmod, link, mkdtemp, open, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { DatabaseError } from "../../database.ts";
import { connect } from "./connection.ts";

/**
 * Copies a plant-store's database, as it is at one moment after the call, into a new file, also while a server writes
 * to it. The file appears complete and fsynced, or not at all, and never replaces another.
 *
 * @param target An absolute path.
 * @param stop Cancels the copy.
 * @returns Whether the file is there: not when it was stopped.
 * @throws {DatabaseError} If the database cannot be read, or not be copied.
 * @throws {Error} The system's, if the file is there already or cannot be written.
 */
export async function backupSqlite(path: string, target: string, stop: AbortSignal): Promise<boolean> {
  connect(path, { access: "read" }).close();
  await using directory = await privateDirectory(dirname(target));
  const draft = join(directory.path, "plants.db");
  if (!(await vacuumInto(path, draft, stop))) return false;
  // A backup is readable for whom the database is.
  await chmod(draft, (await stat(path)).mode & 0o777);
  await fsync(draft);
  // Unlike a rename this fails where there is a file by now.
  await link(draft, target);
  await fsync(dirname(target));
  return true;
}

/** The one request to the Worker that copies. */
export interface BackupRequest {
  readonly path: string;
  readonly target: string;
}

/** Its response: empty, or why the copy failed. */
export interface BackupResponse {
  readonly failure?: string;
}

/** VACUUM blocks its thread until all is copied, and the program's own thread must still receive signals. */
async function vacuumInto(path: string, target: string, stop: AbortSignal): Promise<boolean> {
  const worker = new Worker(new URL("./backup_worker.ts", import.meta.url));
  const done = Promise.withResolvers<boolean>();
  const fail = (message: string) => done.reject(new DatabaseError(`Cannot copy database "${path}": ${message}`));
  const cancel = () => done.resolve(false);
  worker.addEventListener("message", ({ data: { failure } }: MessageEvent<BackupResponse>) =>
    failure === undefined ? done.resolve(true) : fail(failure),
  );
  worker.addEventListener("error", ({ message }) => fail(message));
  stop.addEventListener("abort", cancel);
  if (stop.aborted) cancel();
  worker.postMessage({ path, target } satisfies BackupRequest);
  // A copy that was cancelled can still be writing for a moment, into a directory that is removed with it.
  return done.promise.finally(() => {
    stop.removeEventListener("abort", cancel);
    worker.terminate();
  });
}

/** Beside the target, because a link cannot lead to another file system. */
async function privateDirectory(parent: string) {
  const path = await mkdtemp(join(parent, ".plant-store-backup-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

async function fsync(path: string): Promise<void> {
  await using file = await open(path);
  await file.sync();
}
