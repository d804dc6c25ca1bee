// What no program may do that has `plant-store/sqlite` open: it reads its own database file while plants
// are stored. Then another process opens the file and closes it. Prints what it acknowledged in each file.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import type * as sqlite from "../../src/database/sqlite/mod.ts";
import type * as source from "../../src/mod.ts";
import { fern, TEXT } from "../support/plants.ts";

const { MODULE = "" } = process.env;
const [directory = "", rounds = ""] = process.argv.slice(2);
const { groupCommit } = (await import(MODULE)) as typeof source;
const { sqliteStore } = (await import(
  new URL("database/sqlite/mod.js", MODULE).href
)) as typeof sqlite;

const OPEN_AND_CLOSE = `
import sqlite3, sys
client = sqlite3.connect(sys.argv[1])
client.execute("SELECT count(*) FROM plants").fetchall()
client.close()`;

/** Under ids that the clients do not use. */
const LARGE = Array.from({ length: 900 }, (_, id) =>
  fern({ id: -1 - id, [TEXT]: "x".repeat(5_000) }),
);

for (let round = 0; round < Number(rounds); round++) {
  const path = join(directory, `${round}.db`);
  const store = await sqliteStore(path);
  const plants = groupCommit(store);
  // The other process takes some milliseconds to move as many pages: that is the time for losses.
  await store.add(LARGE, { timeoutMs: 60_000 });
  const acknowledged: number[] = [];
  let stop = false;
  let id = 0;

  const clients = Array.from({ length: 4 }, async () => {
    for (;;) {
      if (stop) return;
      const own = ++id;
      await plants.add(fern({ id: own })).then(
        () => acknowledged.push(own),
        () => (stop = true),
      );
      await sleep(0);
    }
  });

  await sleep(20);
  readFileSync(path);
  const other = spawn("python3", ["-c", OPEN_AND_CLOSE, path]);
  await new Promise((resolve) => other.on("exit", resolve));
  await sleep(20);

  stop = true;
  await Promise.all(clients);
  console.log(JSON.stringify({ path, acknowledged }));
}

process.exit(0);
