import { expect, setDefaultTimeout, test } from "bun:test";
import type { NewPlant } from "../../src/plant/plant.ts";
import { INTACT, makeLedger, printed } from "../support/ledger.ts";
import { printedSeed, randomFrom, randomPlants } from "../support/load.ts";
import { skipsCluster, startCluster } from "../support/postgres.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { judge, openService, startAdding } from "./postgres.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** A commit that waits for the synchronous standby. */
const WAITING_FOR_STANDBY = "SELECT 1 AS one FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

test.skipIf(skipsCluster())(
  "with its synchronous standby gone nothing is acknowledged, and promoting it loses nothing",
  async () => {
    const began = performance.now();
    await using primary = await startCluster();
    await using standby = await startCluster({ primary });
    await primary.waitForStandby();
    // What a role would do without the standby it does with it.
    await primary.run("ALTER ROLE postgres SET synchronous_commit = local");
    const url = `postgres://postgres@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/postgres`;
    await using service = await openService(url);
    const { plants, tokens } = service;
    const ledger = makeLedger();
    const addWithin = (timeoutMs: number, ...batch: NewPlant[]) => {
      batch.forEach(ledger.attempt);
      return plants.add(batch, { timeoutMs }).catch((error) => error);
    };
    const unavailable = { code: "storage_unavailable" };

    await standby.kill();
    const waiting = addWithin(2_000, { id: 0n, name: "Moss" });
    while ((await primary.run(WAITING_FOR_STANDBY)).length === 0) await Bun.sleep(5);
    for (let round = 1n; round < 4n; round++) {
      const ids = [0n, 1n, 2n, 3n].map((lane) => 10n * round + lane);
      const tried = await Promise.all(ids.map((id) => addWithin(100, { id, name: "Moss" })));
      expect(tried).toMatchObject([unavailable, unavailable, unavailable, unavailable]);
    }
    expect(await plants.probe().catch((error) => error)).toMatchObject(unavailable);
    expect(await waiting).toMatchObject(unavailable);
    // Who may call is still known: reading waits for no standby, and for nobody who writes.
    const createdAt = new Date("2026-01-01T00:00:00.001Z");
    const created = ["a", "b"].map((name) =>
      tokens.add({
        name,
        digest: new Uint8Array(32).fill(name.charCodeAt(0)),
        createdAt,
        expiresAt: null,
        scopes: [],
      }),
    );
    void Promise.allSettled(created);
    while ((await primary.run(`${WAITING_FOR_STANDBY} AND query LIKE '%"tokens"%'`)).length === 0) await Bun.sleep(5);
    expect(await tokens.list()).toEqual([]);
    // So does an export, and it has none of what waits.
    expect(await Array.fromAsync(service.pages())).toEqual([]);
    const [activity] = await primary.run(
      "SELECT count(*)::int AS connections FROM pg_stat_activity WHERE application_name = 'plant-store'",
    );
    // Each of six lanes has one, and has left one behind at most.
    expect(activity?.["connections"]).toBeLessThanOrEqual(12);

    // The primary has committed one, and shows it: but no standby has it.
    await primary.kill();
    await primary.restart();
    expect(await primary.run("SELECT name FROM plants WHERE id = 0")).toEqual([{ name: "Moss" }]);
    expect(await addWithin(1_000, { id: 0n, name: "Moss" })).toMatchObject(unavailable);
    await standby.restart();
    expect(await addWithin(LONG_TEST_TIMEOUT_MS, { id: 0n, name: "Moss" })).toEqual(["present"]);

    const next = randomPlants(randomFrom(printedSeed("failover")), { ids: 5_000, longest: 500 });
    const load = startAdding(service, ledger, next);
    await load.more(200);
    await primary.kill();
    await standby.run("SELECT pg_promote()");
    await load.more(200);
    const { gapMs, acknowledged } = await load.stop();
    const size = `${acknowledged} acknowledged, ${Math.round(gapMs)} ms without`;
    expect(printed({ experiment: "standby gone, failover", size, verdict: await judge(url, ledger), began })).toEqual(
      INTACT,
    );
  },
);
