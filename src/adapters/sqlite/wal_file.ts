import { existsSync, realpathSync } from "node:fs";

/** The WAL of a database: beside the file itself, where the path is a symbolic link to it. */
export function walFile(path: string): string {
  return `${existsSync(path) ? realpathSync(path) : path}-wal`;
}
