import { renameSync, rmSync, statSync } from "node:fs";
import { DatabaseError } from "../database.ts";
import { createPrivateFile, databaseFile, readTrusted } from "./files.ts";

/**
 * Remembers beside a database, as `plants.db-corrupt`, that its file is corrupt: a corrupt file cannot be trusted to hold
 * that itself. A marker is about one file: a backup that is copied to the path later is another one, and not marked.
 */
export interface CorruptionMarker {
  /** What was found in the file, in one line; nothing if no corruption is known. Looks at the disk. */
  finding(): string | undefined;
  /** Marks the file. If that is impossible it is not: then the next check finds the corruption again. */
  write(finding: string): void;
  /** What the marker's file holds, to be given to {@linkcode clear}. */
  content(): string | undefined;
  /** Removes the marker, unless it was written anew since it held this content, or another file is at the path now. */
  clear(content: string | undefined): void;
}

const SUFFIX = "-corrupt";

/** What is read of a marker, in bytes. */
const MAX_BYTES = 4_096;

/** The marker of the file that is at this path now. */
export function corruptionMarker(path: string): CorruptionMarker {
  const [file, identity] = [databaseFile(path), identityOf(path)];
  const content = () => readTrusted(file, SUFFIX, MAX_BYTES);
  return {
    content,
    finding() {
      const marked = parse(content());
      return marked?.file === identity ? marked?.finding : undefined;
    },
    write(finding) {
      if (identity === undefined) return;
      const line = finding.replaceAll("\n", " ").slice(0, MAX_BYTES / 8);
      const marked: Marked = { file: identity, finding: line, foundAt: new Date().toISOString() };
      try {
        replaceMarker(file, `${JSON.stringify(marked)}\n`);
      } catch {
        // The disk that corrupted the file may be full or read-only by now.
      }
    },
    clear(before) {
      if (before === undefined || content() !== before || identityOf(path) !== identity) return;
      rmSync(file + SUFFIX, { force: true });
    },
  };
}

/**
 * Requires that no corruption was found in a file before: only a check of the whole file, or another file, ends it.
 *
 * @param advice What to do about it.
 * @throws {DatabaseError} If it was.
 */
export function requireUnmarked(path: string, advice: string): void {
  const finding = corruptionMarker(path).finding();
  if (finding !== undefined) throw new DatabaseError(`it is corrupt (${finding}); ${advice}`);
}

/** What a marker holds, as JSON: an operator may read it. */
interface Marked {
  /** As of {@linkcode identityOf}. */
  readonly file: string;
  readonly finding: string;
  readonly foundAt: string;
}

function parse(content: string | undefined): Marked | undefined {
  try {
    return content === undefined ? undefined : ((JSON.parse(content) ?? undefined) as Marked | undefined);
  } catch {
    // It was cut off by a crash: then the next check finds the corruption again.
    return undefined;
  }
}

/** If the disk is full, the marker that is there stays, whole. */
function replaceMarker(file: string, text: string): void {
  const draft = `${file}${SUFFIX}-new`;
  rmSync(draft, { force: true });
  try {
    createPrivateFile(draft, text, statSync(file));
    renameSync(draft, file + SUFFIX);
  } finally {
    rmSync(draft, { force: true });
  }
}

/**
 * Which file is at this path; nothing if there is none. Writing changes none of it. A new file may get the inode of one
 * that was deleted, but not the birth time. The number of the device is not part of it: it can change at a boot or a mount,
 * and a marker lies beside its file.
 */
export function identityOf(path: string): string | undefined {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats && `${stats.ino}:${stats.birthtimeNs}`;
}
