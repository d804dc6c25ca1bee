// The two markers beside a database, which outlive the process that wrote them.
import { existsSync, renameSync, rmSync, writeFileSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { identityOf } from "./file_identity.ts";
import { CORRUPT_SUFFIX, databaseFile, UNSYNCED_SUFFIX } from "./path.ts";
import { readTrusted } from "./trust.ts";

// BUG: on a disk that is full or read-only by then, no marker can be written. The next check finds the
// corruption again, and a server resets the WAL at every start. But a command that writes before the
// next start trusts transactions that the failed fsync left only in the page cache.

/** How much of a corruption marker is read, in bytes. */
const MARKER_BYTES = 4_096;

/** Creates a file that only its owner may read and write. Follows no link. */
const PRIVATE = { flag: "wx", mode: 0o600 };

/**
 * Returns the corruption marker of a database: a file beside it, because a corrupt file cannot be
 * trusted to hold the mark.
 *
 * The marker applies to whatever file is at the path. Neither the content of a file nor its inode tells a
 * copy of the corrupt file from a restored backup. So only `check` removes the marker, if the file is
 * sound, and `restore` moves it away with the old file.
 */
export function corruptionMarker(path: string) {
  const file = databaseFile(path);
  const identity = identityOf(path);
  const content = () => readTrusted(file, CORRUPT_SUFFIX, MARKER_BYTES);

  return {
    /** Reads the marker, for `clear`. */
    content,

    /** Reads the corruption that was found, as one line; `undefined` if the file is not marked. */
    finding(): string | undefined {
      // The store asks before every call, and `access` is the cheapest way to find no marker.
      if (!existsSync(file + CORRUPT_SUFFIX)) return undefined;
      const marked = content();
      return marked === undefined ? undefined : findingIn(marked);
    },

    /**
     * Marks the file, if it is still at its path. If that fails, the next check finds the corruption
     * again.
     */
    write(finding: string): void {
      if (identity === undefined || identityOf(path) !== identity) return;

      const line = finding.replaceAll("\n", " ").slice(0, MARKER_BYTES / 8);
      // JSON, so that an operator can read it.
      const marked = { finding: line, foundAt: new Date().toISOString() };
      const draft = `${file}${CORRUPT_SUFFIX}-new`;

      try {
        try {
          rmSync(draft, { force: true });
          writeFileSync(draft, `${JSON.stringify(marked)}\n`, PRIVATE);
          // Rename, so that on a full disk the old marker stays.
          renameSync(draft, file + CORRUPT_SUFFIX);
        } finally {
          rmSync(draft, { force: true });
        }
      } catch {
        // The disk may be full or read-only by now.
      }
    },

    /** Removes the marker, unless the marker or the file at the path has changed. */
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
    // A crash has truncated the marker, or this user may not read it. It counts all the same.
  }
  return "an earlier check or request found that";
}

/**
 * Requires that a file is not marked as corrupt. Only a check of the whole file or a restore removes the
 * mark.
 *
 * @param advice Returns what to do about it, for the message.
 * @throws {DatabaseError} If it is marked.
 */
export function requireUnmarked(path: string, advice: () => string): void {
  const finding = corruptionMarker(path).finding();
  if (finding !== undefined) throw new DatabaseError(`it is corrupt (${finding}); ${advice()}`);
}

/**
 * Marks that an fsync of the database or of its WAL failed, if possible. The next process could read
 * data that is only in the page cache, and that no later fsync writes. The marker itself needs no
 * fsync, because a power loss clears the page cache as well.
 *
 * @param file From {@linkcode databaseFile}.
 */
export function markUnsynced(file: string): void {
  try {
    writeFileSync(file + UNSYNCED_SUFFIX, "", PRIVATE);
  } catch {
    // The marker exists already, or the failing disk is full or read-only by now.
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
