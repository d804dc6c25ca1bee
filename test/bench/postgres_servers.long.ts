import { expect, setDefaultTimeout, test } from "bun:test";

import { post } from "../support/client.ts";
import { returned } from "../support/plants.ts";
import { skipsCluster, startCluster } from "../support/postgres.ts";
import { skipsProc, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { CREDENTIALS, POOL } from "./contenders.ts";
import { MONSTERA } from "./prefilled.ts";
import { startContender } from "./servers.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.skipIf(skipsProc() || skipsCluster())(
  "startContender() loads several servers on one database together, and measures the database separately",
  async () => {
    await using cluster = await startCluster();
    const count = async () => (await cluster.run("SELECT FROM plants")).length;
    const env = { DATABASE_URL: cluster.url("postgres") };
    const pools = { ...POOL, env, databaseProcesses: cluster.processes, count, servers: 2 };

    // At the end all that both have stored is compared with what both have answered.
    await using servers = await startContender(pools);
    const cost = await servers.load({ connections: 4, seconds: 1 });

    // The ids of each load begin in a range of their own.
    const loads = await cluster.run(
      "SELECT count(DISTINCT id / 100000000000) AS loads FROM plants",
    );
    expect(loads).toEqual([{ loads: "2" }]);
    expect(await count()).toBeGreaterThanOrEqual(cost.responses);
    expect(await count()).toBeLessThanOrEqual(cost.responses + 8);
    expect(cost.cpuMicros).toBeGreaterThan(0);
    expect(cost.databaseMicros).toBeGreaterThan(0);
  },
);

test.skipIf(skipsCluster())(`${POOL.name}: a plant is stored and returned`, async () => {
  await using cluster = await startCluster();
  const env = { ...CREDENTIALS, DATABASE_URL: cluster.url("postgres") };
  await using server = await startServer({ program: POOL.program, env });
  const response = await post(server.url, MONSTERA);
  expect(response.status).toBe(200);
  expect(await response.json()).toEqual(returned(MONSTERA));
  expect(await cluster.run("SELECT FROM plants")).toHaveLength(1);
});
