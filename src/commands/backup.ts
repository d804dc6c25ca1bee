import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import { CommandError, isSystemError, reasonOf } from "../errors.ts";
import { type Action, type Call, databaseFlag, examples } from "./command.ts";
import { counted, progressBar, sizeOf } from "./output.ts";

/** Declares `plant-store backup`. */
export function declareBackup(program: Command, action: Action): void {
  program
    .command("backup <file>")
    .description("Copy the database into a new file, even while a server runs")
    .addOption(databaseFlag())
    .addHelpText("after", examples("backup plants-2026-11-20.db"))
    .action(action(backup));
}

/** A path that ends with a slash, `.` or `..`: a directory. */
const NO_FILE = /(?:^|\/)\.{0,2}$/;

/** The file appears complete and fsynced, or not at all, and never replaces another. */
async function backup({ argument: target, adapter, io }: Call): Promise<number> {
  const database = await adapter();
  if (NO_FILE.test(target)) throw new CommandError(`Cannot back up to "${target}": expected a file`);
  // The adapter checks this too, but only after copying everything.
  if (existsSync(target))
    throw new CommandError(`Cannot back up to "${target}": file already exists; choose another one`);
  try {
    const bar = progressBar(io);
    const onProgress = (done: number, total: number) => bar.update({ done, total });
    const plants = await database.backup(resolve(target), { stop: io.stop, onProgress }).finally(bar.clear);
    if (plants === undefined) io.stderr("Stopped: no backup was made\n");
    else {
      const size = `${counted(plants, "plant")}, ${sizeOf(statSync(target).size)}`;
      io.stderr(`Backed up "${database.name}" to "${target}": ${size}\n`);
    }
    return plants === undefined ? 1 : 0;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new CommandError(`Cannot back up to "${target}": ${reasonOf(error)}`, { cause: error });
  }
}
