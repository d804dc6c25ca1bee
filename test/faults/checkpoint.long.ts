import { expect, setDefaultTimeout, test } from "bun:test";
import { bearer } from "../support/client.ts";
import { INTACT, makeLedger } from "../support/ledger.ts";
import { limited, startLoad } from "../support/load.ts";
import { startServer, LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import { get } from "./health.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** So many plants fill more of the WAL than it takes for a checkpoint, 4,000 pages of 4 KiB. */
const PLANTS = 300;
const NAME = "x".repeat(60_000);

test.skipIf(skipsShim())(
  "a checkpoint that fails is logged and counted, loses no plant, and one after it succeeds",
  async () => {
    using disk = makeDisk({ shim: true });
    const ledger = makeLedger();
    await using server = await startServer(disk.server({ faults: { errno: "ENOSPC" } }));
    const { url, stderr, child } = server;
    let id = 0n;
    const next = () => ({ id: id++, name: NAME });
    const store = () => startLoad({ url, connections: 8, ledger, next: limited(next, PLANTS) }).end;

    expect(await failuresOf(url)).toBe(0);
    disk.raise("fail-checkpoint");
    expect(await store()).toMatchObject({ responses: { "200": PLANTS }, unanswered: 0 });
    await stderr.until(/"message":"Checkpoint failed".*"cause":".*database or disk is full/);
    // The test's own time limit ends it.
    while ((await failuresOf(url)) === 0) await Bun.sleep(100);
    expect(await get(url, "/readyz")).toBe("200");

    disk.clear("fail-checkpoint");
    expect(await store()).toMatchObject({ responses: { "200": PLANTS }, unanswered: 0 });
    expect(Bun.file(disk.database).size).toBeGreaterThan(PLANTS * NAME.length);
    child.kill("SIGTERM");
    expect(await child.exited).toBe(0);
    expect(ledger.judge(disk.database)).toEqual(INTACT);
  },
);

/** How many checkpoints failed, by the server's metrics. */
async function failuresOf(url: string): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`, { headers: bearer() })).text();
  return Number(/^plant_store_checkpoint_failures_total (\d+)$/m.exec(metrics)?.[1]);
}
