import { expect, setDefaultTimeout, test } from "bun:test";

import { skipsCluster, startCluster } from "./postgres.ts";
import { ROOT, TEST_TIMEOUT_MS } from "./program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What uses `TEST_DATABASE_URL`. */
const FILES = ["test/database/postgres/database.test.ts", "test/faults/same_bytes.test.ts"];

test.skipIf(skipsCluster())(
  "test files in several processes share the database that TEST_DATABASE_URL names",
  async () => {
    await using cluster = await startCluster();
    const { exitCode, stderr } = Bun.spawnSync(
      [process.execPath, "test", "--parallel=2", ...FILES],
      {
        cwd: ROOT,
        // A run on a terminal tells its workers to use colours, and they would tell this one.
        env: {
          ...process.env,
          TEST_DATABASE_URL: cluster.url("postgres"),
          TEST_SCALE: "short",
          FORCE_COLOR: "0",
        },
      },
    );

    expect([exitCode, stderr.toString()]).toEqual([0, expect.stringMatching(/^ *0 fail$/m)]);
    expect(await cluster.run("SELECT to_regclass('plants') IS NOT NULL AS is_used")).toEqual([
      { is_used: true },
    ]);
  },
);
