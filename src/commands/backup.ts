import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";

import { CommandError, isSystemError, reasonOf } from "../errors.ts";
import { DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { counted, sizeOf } from "./formatting.ts";
import { progressBar } from "./progress_bar.ts";
import { JSON_FLAG, printResult } from "./result.ts";

/** A path that ends with a slash, `.` or `..`, which is a directory; or `-`, which scripts take for stdout. */
const NO_FILE = /(?:^|\/)\.{0,2}$|^-$/;

/**
 * `plant-store backup`: the file appears complete and fsynced, or not at all, and never replaces
 * another.
 */
export const backup: Subcommand = {
  usage: "backup <file>",
  description: "Copy the database into a new file, even while a server runs",
  flags: [JSON_FLAG, ...DATABASE_FLAGS],
  example: "backup plants-2026-11-20.db",
  async run({ argument: target, flags, adapter, io }) {
    const database = await adapter();

    if (NO_FILE.test(target))
      throw new CommandError(`Cannot back up to "${target}": expected a file`);
    // The adapter checks this too, but only after copying everything.
    if (existsSync(target))
      throw new CommandError(
        `Cannot back up to "${target}": file already exists; choose another one`,
      );

    try {
      const bar = progressBar(io);
      const options = { stop: io.stop, onProgress: bar.update };
      const plants = await database.backup(resolve(target), options).finally(bar.clear);
      if (plants === undefined) throw new CommandError("Stopped: no backup was made");

      const { size: bytes } = statSync(target);
      const result = { database: database.name, file: target, plants, bytes };

      await printResult({ io, flags }, result, () => {
        const size = `${counted(plants, "plant")}, ${sizeOf(bytes)}`;
        io.stderr(`Backed up "${database.name}" to "${target}": ${size}\n`);
      });
    } catch (error) {
      if (!isSystemError(error)) throw error;
      throw new CommandError(`Cannot back up to "${target}": ${reasonOf(error)}`, { cause: error });
    }
  },
};
