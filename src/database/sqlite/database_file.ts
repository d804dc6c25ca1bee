import { isUtf8 } from "node:buffer";
import { readlinkSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, isAbsolute, join } from "node:path";
import { DatabaseError } from "../database.ts";

/** How many links Linux follows before it calls them a loop: path_resolution(7). */
const MAX_LINKS = 40;

/**
 * The file of a database, by the one path that it has without links, also where it is not there yet: SQLite follows links,
 * and names the files beside it after the last one.
 *
 * @throws {DatabaseError} If its directory cannot be reached, the links lead to each other, or the path ends as that of a
 * directory does: SQLite would open a file all the same.
 */
export function databaseFile(path: string): string {
  // bun:sqlite leaves out white space around a path.
  let file = path.trim();
  for (let links = 0; links <= MAX_LINKS; links++) {
    if (/\/\.?$/.test(file)) throw new DatabaseError("it is not a file");
    const found = attempt(() => realpathSync.native(file, "buffer"));
    const target = found ?? attempt(() => readlinkSync(file, "buffer"));
    const directory = directoryOf(file);
    // What is no UTF-8 cannot be written in a string: it is left to the system.
    if (!isUtf8(directory) || (target !== undefined && !isUtf8(target))) return path;
    if (found !== undefined) return found.toString();
    if (target === undefined) return join(directory.toString(), basename(file));
    // The system follows a link before it takes the ".." behind it, and so does not join().
    file = isAbsolute(target.toString()) ? target.toString() : `${directory}/${target}`;
  }
  throw new DatabaseError("its symbolic links lead to each other");
}

function directoryOf(file: string): Buffer {
  try {
    return realpathSync.native(dirname(file), "buffer");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new DatabaseError(code === "ENOENT" ? "there is no such directory" : `it cannot be reached (${code})`);
  }
}

/** What a function returns; nothing where it throws. */
function attempt<Result>(run: () => Result): Result | undefined {
  try {
    return run();
  } catch {
    return undefined;
  }
}

/** The WAL of a database: beside the file itself. */
export function walFile(path: string): string {
  return `${databaseFile(path)}-wal`;
}

/** How large the WAL of a database is, in bytes: 0 where there is none, or it cannot be reached. */
export function walBytes(path: string): number {
  return attempt(() => statSync(walFile(path)).size) ?? 0;
}
