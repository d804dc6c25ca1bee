import { parseLocation } from "../database/location.ts";
import type { PostgresUrl } from "../database/postgres/url.ts";
import { cannotUse, readUrlFile } from "./secret_files.ts";
import type { Config } from "./settings.ts";

/**
 * Reads the URL of a database on PostgreSQL again, after a rotation of its password.
 *
 * @returns `undefined` if it is in no file.
 */
export function urlReader({
  databaseUrlFile: path,
}: Config): (() => Promise<PostgresUrl>) | undefined {
  if (path === undefined) return undefined;

  return async () => {
    const location = parseLocation(await readUrlFile(path));
    if (location.adapter === "postgres") return location.url;
    throw cannotUse("DATABASE_URL_FILE", path, "expected postgres://…");
  };
}
