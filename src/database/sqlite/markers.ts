// The two markers beside a database, which outlive the process that wrote them.
import { existsSync, renameSync, rmSync, writeFileSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { identityOf } from "./file_identity.ts";
import { CORRUPT_SUFFIX, databaseFile, UNSYNCED_SUFFIX } from "./path.ts";
import { createPrivateFile, readTrusted } from "./trust.ts";

// BUG: a marker that cannot be written, on a disk that is full or read-only by then, is missing. The
// next check finds corruption again; a server resets the WAL at every start; but a command that
// writes before the next server starts trusts what the failed fsync left in the page cache.

/** How much of a corruption marker is read, in bytes. */
const MARKER_BYTES = 4_096;

/**
 * The marker that the file at a path is corrupt: a corrupt file cannot be trusted with that itself.
 *
 * It is about whatever file it is beside. Nothing inside of a file tells a copy of the corrupt one
 * from a restored backup, and a copy of both to another disk has another inode. So `check` removes it
 * from a sound file, `restore` moves it away with the old one, and nothing else does.
 */
export function corruptionMarker(path: string) {
  const file = databaseFile(path);
  const identity = identityOf(path);
  const content = () => readTrusted(file, CORRUPT_SUFFIX, MARKER_BYTES);

  return {
    /** The content of the marker, for `clear`. */
    content,

    /** The corruption that was found, in one line; `undefined` if none is known. Reads the disk. */
    finding(): string | undefined {
      // The store asks before every call, and usually there is none: looking for it costs least.
      if (!existsSync(file + CORRUPT_SUFFIX)) return undefined;
      const marked = content();
      return marked === undefined ? undefined : findingIn(marked);
    },

    /**
     * Marks the file if possible, and if it is still at its path. Otherwise the next check finds the
     * corruption again.
     */
    write(finding: string): void {
      if (identity === undefined || identityOf(path) !== identity) return;

      const line = finding.replaceAll("\n", " ").slice(0, MARKER_BYTES / 8);
      // As JSON, which an operator may read.
      const marked = { finding: line, foundAt: new Date().toISOString() };
      const draft = `${file}${CORRUPT_SUFFIX}-new`;

      try {
        try {
          rmSync(draft, { force: true });
          createPrivateFile(draft, `${JSON.stringify(marked)}\n`);
          // Replaces the marker as a whole: on a full disk the old one stays.
          renameSync(draft, file + CORRUPT_SUFFIX);
        } finally {
          rmSync(draft, { force: true });
        }
      } catch {
        // The disk may be full or read-only by now.
      }
    },

    /** Removes the marker if it still has this content, and the path still has the same file. */
    clear(before: string | undefined): void {
      if (before === undefined || content() !== before || identityOf(path) !== identity) return;
      rmSync(file + CORRUPT_SUFFIX, { force: true });
    },
  };
}

function findingIn(marked: string): string {
  try {
    const { finding } = JSON.parse(marked) as { readonly finding?: unknown };
    if (typeof finding === "string") return finding;
  } catch {
    // A crash has cut it off, or it may not be read. It is a marker all the same.
  }
  return "an earlier check or request found that";
}

/**
 * Requires that a file is not marked as corrupt. Only a check of the whole file, or a restore, ends
 * that.
 *
 * @param advice What to do about it.
 * @throws {DatabaseError} If it is marked.
 */
export function requireUnmarked(path: string, advice: () => string): void {
  const finding = corruptionMarker(path).finding();
  if (finding !== undefined) throw new DatabaseError(`it is corrupt (${finding}); ${advice()}`);
}

/**
 * Marks that an fsync of the database or of its WAL failed, if possible: the next process may read
 * data that exists only in the page cache, and no later fsync writes it. The marker itself needs no
 * fsync: a power loss ends the page cache as well.
 *
 * @param file From {@linkcode databaseFile}.
 */
export function markUnsynced(file: string): void {
  try {
    writeFileSync(file + UNSYNCED_SUFFIX, "", { flag: "wx", mode: 0o600 });
  } catch {
    // It is there; or the disk that failed is full or read-only by now.
  }
}

/** Whether a file is marked by {@linkcode markUnsynced}. */
export function isUnsynced(file: string): boolean {
  return existsSync(file + UNSYNCED_SUFFIX);
}

/** Removes the mark, once the WAL was reset. */
export function clearUnsynced(file: string): void {
  rmSync(file + UNSYNCED_SUFFIX, { force: true });
}
