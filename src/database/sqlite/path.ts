/**
 * `file:PATH`, `file:///PATH` (RFC 8089), or a bare path. A bare text with a colon or an at sign may
 * be a mistyped URL with a password.
 */
const FILE = /^(?:file:(?:\/\/(?=\/))?(?=[^?#]+$)|(?=[^:@?#]+$))(.+)$/s;

/**
 * Extracts the path from `file:PATH`, a file URL or a bare path, without white space around it, which
 * bun:sqlite ignores.
 *
 * @returns `undefined` if it names none: a database in memory would lose every plant, and two
 *   slashes name a host.
 */
export function sqlitePath(text: string): string | undefined {
  const path = FILE.exec(text)?.[1]?.trim();
  return !path || path.startsWith("//") || path === ":memory:" ? undefined : path;
}
