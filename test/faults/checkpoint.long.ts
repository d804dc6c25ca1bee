import { expect, setDefaultTimeout, test } from "bun:test";

import { bearer } from "../support/client.ts";
import { limited } from "../support/load.ts";
import { fern, TEXT } from "../support/plants.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { get, startOnDisk, stop } from "./health.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** So many plants fill more of the WAL than it takes for a checkpoint, 4,000 pages of 4 KiB. */
const PLANTS = 300;
const NAME = "x".repeat(60_000);

test.skipIf(skipsShim())(
  "a failed checkpoint is logged and counted, loses no plant, and a later one succeeds",
  async () => {
    await using server = await startOnDisk({ shim: true, faults: { errno: "ENOSPC" } });
    const { url, stderr, disk } = server;
    let id = 0n;
    const next = () => fern({ id: id++, [TEXT]: NAME });
    const store = () => server.load({ connections: 8, next: limited(next, PLANTS) }).end;

    const failures = async () => {
      const metrics = await (await fetch(`${url}/metrics`, { headers: bearer() })).text();
      return Number(/^plant_store_checkpoint_failures_total (\d+)$/m.exec(metrics)?.[1]);
    };

    expect(await failures()).toBe(0);

    disk.raise("fail-checkpoint");
    expect(await store()).toMatchObject({ responses: { "200": PLANTS }, unanswered: 0 });

    await stderr.until(/"message":"Checkpoint failed".*"cause":.*database or disk is full/);
    // The test's own time limit ends it.
    while ((await failures()) === 0) await Bun.sleep(100);
    expect(await get(url, "/readyz")).toBe("200");

    disk.clear("fail-checkpoint");
    expect(await store()).toMatchObject({ responses: { "200": PLANTS }, unanswered: 0 });
    expect(Bun.file(disk.database).size).toBeGreaterThan(PLANTS * NAME.length);
    expect(await stop(server)).toBe(0);

    server.requireIntact();
  },
);
