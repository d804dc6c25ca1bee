import { CommandError } from "../errors.ts";
import { type DatabaseLocation, adapterOf } from "../database/open_database.ts";
import type { CheckProgress } from "../database/adapter.ts";
import { type Io } from "./output.ts";
import { writeOutput } from "./output.ts";
import { type Progress, progressBar } from "./progress.ts";

/**
 * `plant-store check`: reads the whole database for corruption, even while a server writes to it, and prints the result. A
 * server refuses to start on a file that was found corrupt before; on one that is sound it starts again.
 *
 * @returns 0 for a sound database; 1 when it was stopped.
 * @throws {ConfigError} If the database is not a file: PostgreSQL has tools of its own.
 * @throws {CommandError} If the database is corrupt, or could not be checked.
 */
export async function check(database: DatabaseLocation, io: Io): Promise<number> {
  const adapter = await adapterOf(database);
  let bar: Progress | undefined;
  const onProgress = ({ plants, total }: CheckProgress) => {
    bar ??= progressBar({ ...io, total });
    bar.update(plants, plants);
  };
  const result = await adapter.check({ stop: io.stop, onProgress });
  bar?.clear();
  switch (result.type) {
    case "sound":
      await writeOutput(io, `"${adapter.name}" is sound: ${result.plants} plants, ${result.pages} pages\n`);
      return 0;
    case "stopped":
      io.stderr("Stopped: the check is incomplete\n");
      return 1;
    case "corrupt":
      throw new CommandError(`"${adapter.name}" is corrupt: ${result.finding}`);
    case "failed":
      throw new CommandError(result.reason);
  }
}
