import { existsSync, readdirSync, statSync, unlinkSync } from "node:fs";
import { join, resolve } from "node:path";

import type { DatabaseAdapter } from "../database/adapter.ts";
import { CommandError, isSystemError, reasonOf } from "../errors.ts";
import { parseInteger } from "../settings/parsers.ts";
import { type Call, DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { counted, formatBytes } from "./formatting.ts";
import { JSON_FLAG, printResult } from "./result.ts";
import { warningsTo } from "./terminal.ts";

/**
 * Matches a path that ends with a slash, `.` or `..`, which is a directory; and `-`, which usually
 * means stdout.
 */
const NO_FILE = /(?:^|\/)\.{0,2}$|^-$/;

/**
 * `plant-store backup`: the file appears complete, checked and fsynced, or not at all, and never
 * replaces another. With `--keep`, the target is a directory: the file gets a dated name, and older
 * ones are deleted after it is there.
 */
export const backup: Subcommand = {
  usage: "backup <target>",
  description: "Copy the database into a new file, even while servers run",
  flags: [
    [
      "--keep <number>",
      "The target is a directory: write a dated file, and keep the newest <number>",
    ],
    JSON_FLAG,
    ...DATABASE_FLAGS,
  ],
  example: "backup --keep 14 /var/backups/plant-store",
  run,
};

async function run({ argument, flags, adapter, io }: Call): Promise<void> {
  const { keep } = flags;
  const database = await adapter();
  if (typeof keep !== "string") {
    await copyTo(argument, { database, io, flags, prune: () => [] });
    return;
  }

  const count = parseInteger({ name: "--keep", text: keep }, 1, 999_999);
  // A shell turns an unset variable into an empty argument.
  if (argument === "" || (existsSync(argument) && !statSync(argument).isDirectory()))
    throw new CommandError(`Cannot back up to "${argument}": expected a directory`);

  // In UTC, because local times repeat when clocks go back.
  const name = `plants-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}Z.db`;
  const prune = () => pruneIn(argument, { name, keep: count, warn: io.stderr });
  await copyTo(join(argument, name), { database, io, flags, prune });
}

interface CopyOptions extends Pick<Call, "io" | "flags"> {
  readonly database: DatabaseAdapter;
  /** Deletes older backups, and returns their names. */
  readonly prune: () => readonly string[];
}

async function copyTo(target: string, { database, io, flags, prune }: CopyOptions) {
  if (NO_FILE.test(target))
    throw new CommandError(`Cannot back up to "${target}": expected a file`);
  // The adapter checks this too, but only after copying everything.
  if (existsSync(target))
    throw new CommandError(
      `Cannot back up to "${target}": file already exists; choose another one`,
    );

  try {
    const options = { stop: io.stop, onWarning: warningsTo(io) };
    const plants = await database.backup(resolve(target), options);
    if (plants === undefined) throw new CommandError("Stopped: no backup was made");

    const { size: bytes } = statSync(target);
    const deleted = prune();
    const result = { database: database.name, file: target, plants, bytes, deleted };

    await printResult({ io, flags }, result, () => {
      const size = `${counted(plants, "plant")}, ${formatBytes(bytes)}`;
      const without = deleted.length === 0 ? "" : `; deleted ${deleted.join(", ")}`;
      io.stderr(`Backed up "${database.name}" to "${target}": ${size}${without}\n`);
    });
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new CommandError(`Cannot back up to "${target}": ${reasonOf(error)}`, { cause: error });
  }
}

/** Matches the names of dated backups, which sort by date. */
const DATED = /^plants-\d{4}-\d\d-\d\dT\d{6}Z\.db$/;

/**
 * Deletes all dated backups except the newest `keep`. Deletes nothing if a backup is dated later
 * than the new one: the clock is or was wrong.
 *
 * @returns The names of the deleted backups.
 */
function pruneIn(
  directory: string,
  options: { name: string; keep: number; warn: (text: string) => void },
): readonly string[] {
  const { name, keep, warn } = options;
  const dated = readdirSync(directory)
    .filter((file) => DATED.test(file))
    .toSorted();
  const last = dated.at(-1);

  if (last !== name) {
    warn(`Kept all old backups: "${last}" is dated later than "${name}"; check the clock\n`);
    return [];
  }

  const old = dated.slice(0, -keep);
  for (const file of old) {
    try {
      unlinkSync(join(directory, file));
    } catch (error) {
      // Another backup, running at the same time, has deleted it.
      if ((error as NodeJS.ErrnoException).code === "ENOENT") continue;
      throw new CommandError(
        `Backed up to "${join(directory, name)}", but cannot delete "${join(directory, file)}": ${reasonOf(error)}`,
        { cause: error },
      );
    }
  }
  return old;
}
