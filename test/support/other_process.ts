import { join } from "node:path";

import { ROOT, TEST_TIMEOUT_MS } from "./program.ts";

/** What a script in another process begins with. */
export const PRELUDE = `
  import { connect } from ${JSON.stringify(join(ROOT, "src/database/sqlite/bun_driver.ts"))};
  import { addPlants } from ${JSON.stringify(join(ROOT, "test/support/add_plants.ts"))};
  import { fern, insertOf, TEXT } from ${JSON.stringify(join(ROOT, "test/support/plants.ts"))};
  import { sqliteDatabase } from ${JSON.stringify(join(ROOT, "src/database/sqlite/sqlite_database.ts"))};
  const [, path, access] = process.argv;`;

/** Runs a script in another process, which is ended if it hangs. Returns what it prints. */
export function runApart(script: string, ...args: string[]): string {
  const command = [process.execPath, "-e", PRELUDE + script, ...args];
  return Bun.spawnSync(command, { timeout: TEST_TIMEOUT_MS, killSignal: "SIGKILL" })
    .stdout.toString()
    .trim();
}

/** Ends a script, and leaves its files as they are. */
export const KILL = `process.kill(process.pid, "SIGKILL");`;

/** A database whose last plants are in its WAL alone, as a kill leaves it. */
export function killed(path: string): void {
  runApart(`addPlants(connect(path))([fern()]); ${KILL}`, path);
}
