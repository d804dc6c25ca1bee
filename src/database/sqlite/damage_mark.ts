import { type BigIntStats, existsSync, readFileSync, renameSync, rmSync, type Stats, statSync } from "node:fs";
import { createPrivateFile } from "./file_access.ts";
import { databaseFile } from "./database_file.ts";

/** Remembers beside a database file that it is damaged: a file that is damaged cannot be trusted to hold that itself. */
export interface DamageMark {
  /**
   * What was found in this file, in one line; nothing where no damage is known. The first call looks at the disk, and
   * every later one where the last look is {@linkcode LOOK_MS} ago.
   */
  finding(): string | undefined;
  /** Marks the file. Where that is impossible it is not: then the next check finds the damage again. */
  write(finding: string): void;
}

/**
 * How long after a look there is no other, in milliseconds. Damage is known to another process after a check of
 * seconds; a look before every batch takes a sixth of a lone client's time.
 */
const LOOK_MS = 100;

/**
 * The mark of the file that is at this path now, beside it as `plants.db-damaged`. It is about this one file: a backup
 * that is copied to the path later is another file, and not marked.
 */
export function damageMark(path: string): DamageMark {
  const [mark, file] = [markPath(path), identityOf(statSync(path, { bigint: true }))];
  let lookedAt = Number.NEGATIVE_INFINITY;
  let marked: Mark | undefined;
  return {
    finding() {
      const now = performance.now();
      if (now - lookedAt >= LOOK_MS) {
        lookedAt = now;
        marked = read(mark);
      }
      return marked && isAbout(marked, file) ? marked.finding : undefined;
    },
    write(finding) {
      try {
        const found: Mark = { file, finding: finding.replaceAll("\n", " "), foundAt: new Date().toISOString() };
        replaceFile(mark, `${JSON.stringify(found)}\n`, statSync(path));
      } catch {
        // A disk that damages a file may be full or read-only by now, too.
      }
    },
  };
}

/** What is at the path stays, whole, where the disk is full. */
function replaceFile(path: string, text: string, owner: Stats): void {
  const draft = `${path}-new`;
  rmSync(draft, { force: true });
  try {
    createPrivateFile(draft, text, owner);
    renameSync(draft, path);
  } finally {
    rmSync(draft, { force: true });
  }
}

/**
 * Takes note of the mark at this path before a check.
 *
 * @returns Removes it, when the check has found nothing: not a mark that was written meanwhile, and none once another
 * file is at the path. Returns what another process has found in the file meanwhile.
 */
export function clearableMark(path: string): () => string | undefined {
  // Without a file there is no mark, and the check says what is wrong.
  if (!existsSync(path)) return () => undefined;
  const [mark, { finding }] = [markPath(path), damageMark(path)];
  const [file, content] = [identityAt(path), contentOf(mark)];
  const isAsBefore = () => content !== undefined && contentOf(mark) === content && identityAt(path) === file;
  return () => {
    if (isAsBefore()) rmSync(mark, { force: true });
    return finding();
  };
}

/** Which file is at this path, on its device; nothing where there is none. */
export function identityAt(path: string): string | undefined {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats && identityOf(stats);
}

/** What the mark holds, as JSON: an operator may read it. */
interface Mark {
  readonly file: string;
  readonly finding: string;
  readonly foundAt: string;
}

/** One mark for a file, by whatever links it is opened; so does SQLite name the WAL. */
function markPath(path: string): string {
  return `${databaseFile(path)}-damaged`;
}

/**
 * Writing changes none of these. Of a file that was deleted the next one may get the inode, but not the birth time. The
 * number of the device is no part of it: after a boot or a mount it can be another one, and the mark lies beside the file.
 */
function identityOf({ ino, birthtimeNs }: BigIntStats): string {
  return `${ino}:${birthtimeNs}`;
}

/** Older marks have the number of the device before the rest. */
function isAbout(mark: Mark, file: string): boolean {
  return `:${mark.file}`.endsWith(`:${file}`);
}

function read(mark: string): Mark | undefined {
  const content = contentOf(mark);
  if (content === undefined) return undefined;
  try {
    return (JSON.parse(content) ?? undefined) as Mark | undefined;
  } catch {
    // It was cut off by a crash: then the next check finds the damage again.
    return undefined;
  }
}

function contentOf(mark: string): string | undefined {
  // An error costs more than a look, and there is nearly never a mark.
  if (statSync(mark, { throwIfNoEntry: false }) === undefined) return undefined;
  try {
    return readFileSync(mark, "utf8");
  } catch {
    // It is being removed, or cannot be read: the next check finds the damage again.
    return undefined;
  }
}
