import { existsSync, readlinkSync, realpathSync } from "node:fs";
import { dirname, resolve } from "node:path";

/** How many links Linux follows before it calls them a loop: path_resolution(7). */
const MAX_LINKS = 40;

/**
 * The file of a database, where the path is a symbolic link to it, or to where it will be: SQLite follows links, and
 * names the files beside it after the last one.
 */
export function databaseFile(path: string): string {
  let file = path;
  for (let links = 0; links < MAX_LINKS && !existsSync(file); links++) {
    const target = linkTarget(file);
    if (target === undefined) return file;
    file = resolve(realpathSync(dirname(file)), target);
  }
  return existsSync(file) ? realpathSync(file) : path;
}

/** The WAL of a database: beside the file itself. */
export function walFile(path: string): string {
  return `${databaseFile(path)}-wal`;
}

function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    // It is no link, or is not there.
    return undefined;
  }
}
