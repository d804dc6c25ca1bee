import { renameSync, rmSync, statSync } from "node:fs";
import { DatabaseError } from "../database.ts";
import { createPrivateFile, databaseFile, readTrusted } from "./files.ts";

/**
 * A file beside a database, `plants.db-corrupt`, that marks it as corrupt: a corrupt file cannot be trusted with that
 * itself. A marker is about one file: a backup that is copied to the path later is not marked.
 */
export interface CorruptionMarker {
  /** The corruption that was found, in one line; `undefined` if none is known. Reads the disk. */
  finding(): string | undefined;
  /** Marks the file if possible. Otherwise the next check finds the corruption again. */
  write(finding: string): void;
  /** The content of the marker, for {@linkcode clear}. */
  content(): string | undefined;
  /** Removes the marker if it still has this content, and the path still has the same file. */
  clear(content: string | undefined): void;
}

const SUFFIX = "-corrupt";

/** How much of a marker is read, in bytes. */
const MAX_BYTES = 4_096;

/** The marker of the file that the path has now. */
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
        // The disk may be full or read-only by now.
      }
    },
    clear(before) {
      if (before === undefined || content() !== before || identityOf(path) !== identity) return;
      rmSync(file + SUFFIX, { force: true });
    },
  };
}

/**
 * Requires that a file is not marked as corrupt. Only a check of the whole file, or another file, ends that.
 *
 * @param advice What to do about it.
 * @throws {DatabaseError} If it is marked.
 */
export function requireUnmarked(path: string, advice: string): void {
  const finding = corruptionMarker(path).finding();
  if (finding !== undefined) throw new DatabaseError(`it is corrupt (${finding}); ${advice}`);
}

/** The content of a marker, as JSON, which an operator may read. */
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
    // A crash cut it off: the next check finds the corruption again.
    return undefined;
  }
}

/** Replaces the marker as a whole: on a full disk the old one stays. */
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
 * The identity of the file at this path; `undefined` if there is none. Writing does not change it. A new file may get
 * the inode of a deleted one, but not its birth time. The device number is not part of it: a boot or a mount may change
 * that, and a marker is on the same device as its file.
 */
export function identityOf(path: string): string | undefined {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats && `${stats.ino}:${stats.birthtimeNs}`;
}
