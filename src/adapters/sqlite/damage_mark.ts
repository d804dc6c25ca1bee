import { type BigIntStats, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from "node:fs";

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
      return marked?.file === file ? marked.finding : undefined;
    },
    write(finding) {
      try {
        const found: Mark = { file, finding: finding.replaceAll("\n", " "), foundAt: new Date().toISOString() };
        writeFileSync(mark, `${JSON.stringify(found)}\n`, { mode: 0o600 });
      } catch {
        // A disk that damages a file may be full or read-only by now, too.
      }
    },
  };
}

/** Removes the mark of whatever file is or was at this path. */
export function clearDamageMark(path: string): void {
  rmSync(markPath(path), { force: true });
}

/** What the mark holds, as JSON: an operator may read it. */
interface Mark {
  readonly file: string;
  readonly finding: string;
  readonly foundAt: string;
}

/** One mark for a file, by whatever links it is opened; so does SQLite name the WAL. */
function markPath(path: string): string {
  return `${realpathSync(path)}-damaged`;
}

/** Writing changes none of these. Of a file that was deleted the next one may get the inode, but not the birth time. */
function identityOf({ dev, ino, birthtimeNs }: BigIntStats): string {
  return `${dev}:${ino}:${birthtimeNs}`;
}

function read(mark: string): Mark | undefined {
  if (statSync(mark, { throwIfNoEntry: false }) === undefined) return undefined;
  try {
    return JSON.parse(readFileSync(mark, "utf8")) as Mark;
  } catch {
    // It was cut off by a crash, or is being removed: then the next check finds the damage again.
    return undefined;
  }
}
