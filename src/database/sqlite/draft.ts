import { constants } from "node:fs";
import { link, lstat, mkdtemp, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";

import { DatabaseError } from "../database.ts";
import { createPrivateFile } from "./trust.ts";

const PREFIX = ".plant-store-backup-";

/** The name of a copy until it is complete. */
const DRAFT = "plants.db";

/**
 * Makes an empty draft: beside the target, because a hard link stays in one file system.
 *
 * @throws {DatabaseError} If the file system has no hard links.
 */
export async function draftIn(parent: string) {
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
export async function complete(draft: string, mode: number): Promise<void> {
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
export async function fsync(...paths: string[]): Promise<void> {
  for (const path of paths) {
    await using file = await open(path);
    await file.sync();
  }
}
