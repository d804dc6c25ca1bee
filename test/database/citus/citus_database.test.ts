import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";

import { citusAdapter } from "../../../src/database/citus/citus_adapter.ts";
import { type CitusOptions, openCitus } from "../../../src/database/citus/citus_database.ts";
import { hashint8 } from "../../../src/database/citus/hash.ts";
import type { Database, DatabaseMetric } from "../../../src/database/database.ts";
import { postgresAdapter } from "../../../src/database/postgres/postgres_adapter.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import type { NewPlant } from "../../../src/plant/plant.ts";
import { citusCluster, type CitusWorker, skipsCitus } from "../../support/citus.ts";
import { testDatabaseContract } from "../../support/database_contract.ts";
import { fern, insertOf, ivy } from "../../support/plants.ts";
import { databaseAt, waitingProcess } from "../../support/postgres.ts";
import { LONG_TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

describe.skipIf(skipsCitus())("Citus", () => {
  let cluster: ReturnType<typeof citusCluster>;
  let database: Database;
  const url = () => parsePostgresUrl(cluster.url);
  const adapter = () => citusAdapter(url());

  beforeAll(async () => {
    cluster = citusCluster();
    await cluster.empty();
    await adapter().migrate({ dryRun: false });
    database = await openCitus(url());
  });
  afterAll(async () => {
    await database[Symbol.asyncDispose]();
    await cluster[Symbol.asyncDispose]();
  });

  /** Opens the cluster, and collects what the log would say. */
  async function open(options: CitusOptions = {}) {
    const log: string[] = [];
    const opened = await openCitus(url(), {
      isServing: true,
      onInfo: (message) => void log.push(message),
      onWarning: (message) => void log.push(message),
      ...options,
    });
    return Object.assign(opened, { log });
  }

  const add = (store: Pick<Database["plants"], "add">, plants: readonly NewPlant[]) =>
    store.add(plants, { timeoutMs: 10_000 });

  async function pagesOf(opened: Pick<Database, "pages">): Promise<readonly NewPlant[]> {
    return (await Array.fromAsync(opened.pages())).flat();
  }

  testDatabaseContract(
    "openCitus()",
    async () => {
      await cluster.removeRows();
      return { ...database, async [Symbol.asyncDispose]() {} };
    },
    () => openCitus(url()),
  );

  test("hashint8() is PostgreSQL's", async () => {
    const ids = Array.from({ length: 200 }, (_, index) =>
      BigInt.asIntN(64, BigInt(index) * 0x9e3779b97f4a7c15n),
    );
    const rows = await cluster.run(
      `SELECT id::text, hashint8(id) AS hash FROM unnest('{${ids.join()}}'::bigint[]) AS id`,
    );
    expect(rows.map((row) => hashint8(BigInt(String(row["id"]))))).toEqual(
      rows.map((row) => Number(row["hash"])),
    );
  });

  test("each plant is stored by the node that has its shard, and no transaction has two phases", async () => {
    await cluster.removeRows();
    const plants = Array.from({ length: 200 }, (_, id) => fern({ id: BigInt(id) }));
    for (const plant of plants) await add(database.storeOf(plant), [plant]);

    const stores = Map.groupBy(plants, (plant) => database.storeOf(plant));
    expect(stores.size).toBe((await cluster.workers()).length);
    await using worker = databaseAt((await cluster.workers())[0]?.url as string);
    expect(await worker.run("SELECT FROM pg_dist_transaction")).toEqual([]);
  });

  test("a plant whose node is down is unavailable; those of the others are stored, and readiness names the node", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const workers = await cluster.workers();
    const [first] = workers;
    if (first === undefined) throw new Error("No worker");
    const plants = Array.from({ length: 20 }, (_, id) => fern({ id: BigInt(id) }));
    first.kill();

    const results = await Promise.allSettled(
      plants.map((plant) => opened.storeOf(plant).add([plant], { timeoutMs: 1_500 })),
    );
    await opened.plants.probe();
    while (opened.unready().length === 0) await Bun.sleep(20);
    expect(opened.unready()).toEqual([`node ${first.id}`]);
    expect(readyIn(opened.metrics())).toEqual(
      Object.fromEntries(workers.map(({ id }) => [id, Number(id !== first.id)])),
    );
    expect(opened.log).toEqual([
      "Citus, experimental",
      `Node ${first.id} of Citus cannot store plants`,
    ]);
    const outcomes = results.map(({ status }) => status);
    expect(new Set(outcomes)).toEqual(new Set(["fulfilled", "rejected"]));

    first.restart();
    while (opened.unready().length > 0) await opened.plants.probe().then(() => Bun.sleep(20));
    await add(opened.plants, plants);
    expect(await pagesOf(opened)).toEqual(plants);
    expect(new Set(Object.values(readyIn(opened.metrics())))).toEqual(new Set([1]));
  });

  /** The value of `plant_store_citus_node_ready` by its label. */
  function readyIn(metrics: readonly DatabaseMetric[]): Record<string, number> {
    const ready = metrics.filter(({ name }) => name === "plant_store_citus_node_ready");
    return Object.fromEntries(ready.map(({ labels, value }) => [labels?.["node"], value]));
  }

  test("without its coordinator a server stores plants, says since when revocations are not seen, and is not ready after a limit", async () => {
    await cluster.removeRows();
    await using opened = await open({ coordinatorTimeoutMs: 5_000 });
    const coordinator = await cluster.coordinator();
    coordinator.kill();
    try {
      expect(await add(opened.plants, [fern()])).toEqual(["added"]);
      await opened.plants.probe();
      while (opened.log.length < 2) await Bun.sleep(50);
      expect(opened.log[1]).toMatch(
        /^Coordinator does not respond: plants are stored, but tokens that are revoked after .*Z are accepted$/,
      );

      const isReady = () => opened.plants.probe().then(Boolean, (error: Error) => error.message);
      while ((await isReady()) === false) await Bun.sleep(50);
      expect(await isReady()).toBe("storage has not seen its coordinator for too long");
      expect(await add(opened.plants, [fern({ id: 2n })])).toEqual(["added"]);
    } finally {
      coordinator.restart();
    }
    while (opened.log.length < 3) await Bun.sleep(50);
    expect(opened.log[2]).toBe("Coordinator is back: revoked tokens are refused again");
    await opened.plants.probe();
  });

  test("a worker's own URL is refused with the name of the remedy", async () => {
    const [worker] = await cluster.workers();
    const ofWorker = citusAdapter(parsePostgresUrl(worker?.url as string));
    const message = `the server is worker ${worker?.id} of a Citus cluster; use the URL of its coordinator`;
    await expect(ofWorker.openForServing({})).rejects.toThrow(message);
    await expect(ofWorker.openForWriting({ create: true })).rejects.toThrow(message);
    await expect(ofWorker.openPlants()).rejects.toThrow(message);
    await expect(ofWorker.migrate({ dryRun: true })).rejects.toThrow(message);
  });

  test("a node that may lose plants is refused by name", async () => {
    const [, second] = await cluster.workers();
    await using worker = databaseAt(second?.url as string);
    for (const [setting, value, reason] of [
      ["fsync", "off", "fsync is off"],
      ["synchronous_commit", "local", "synchronous_commit is local for rows"],
    ]) {
      await worker.run(`ALTER SYSTEM SET ${setting} = ${value}`, "SELECT pg_reload_conf()");
      const name = `127.0.0.1:${second?.port}: ${reason}`;
      try {
        while ((await worker.run(`SHOW ${setting}`))[0]?.[setting as string] !== value)
          await Bun.sleep(20);
        await expect(adapter().openForServing({})).rejects.toThrow(name);
      } finally {
        await worker.run(`ALTER SYSTEM RESET ${setting}`, "SELECT pg_reload_conf()");
      }
    }
  });

  test("right after a move, a plant is compared with its row, not with the table that the move has left over", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const plant = fern();
    await add(opened.plants, [plant]);

    // The map is read every three seconds: this one is old.
    await moveShardOf(plant.id);
    await cluster.run("UPDATE plants SET name = 'Ivy' WHERE id = 1");
    expect(await add(opened.plants, [plant, { ...plant, name: "Ivy" }])).toEqual([
      "conflict",
      "present",
    ]);
  });

  test("right after a move, a plant that is found waits for the synchronous standby of the new node", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const plant = fern();
    await add(opened.plants, [plant]);
    const to = await moveShardOf(plant.id);
    {
      await using _ = await withoutStandby(to);
      const adding = opened.plants.add([plant], { timeoutMs: 1_000 });
      await expect(adding).rejects.toMatchObject({ code: "storage_unavailable" });
    }
    expect(await add(opened.plants, [plant])).toEqual(["present"]);
  });

  test("an export shows no plant that the synchronous standby of its node may not have", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const plant = fern();
    await using standby = await withoutStandby(await workerOf(plant.id));

    const adding = add(opened.plants, [plant]);
    const ended = await waitingProcess(standby);
    await standby.run(`SELECT pg_terminate_backend(${ended})`);
    const again = await waitingProcess(standby, ended);

    const page = opened.pages()[Symbol.asyncIterator]().next();
    expect(await Promise.race([page, waitingProcess(standby, ended, again)])).toBeNumber();

    await standby.regain();
    expect(await page).toEqual({ done: false, value: [plant] });
    expect(await adding).toEqual(["present"]);
  });

  /** A worker whose synchronous standby is gone, to the end of the scope. */
  async function withoutStandby({ url: workerUrl }: CitusWorker) {
    const worker = databaseAt(workerUrl);
    const set = async (value: string) => {
      await worker.run(
        `ALTER SYSTEM SET synchronous_standby_names = '${value}'`,
        "SELECT pg_reload_conf()",
      );
      const current = "SELECT current_setting('synchronous_standby_names') AS value";
      while ((await worker.run(current))[0]?.["value"] !== value) await Bun.sleep(20);
      // The checkpointer says whether commits wait for a standby.
      await worker.run("CHECKPOINT");
    };
    await set("nobody");

    return {
      run: worker.run,
      regain: () => set(""),
      async [Symbol.asyncDispose]() {
        await set("");
        await worker[Symbol.asyncDispose]();
      },
    };
  }

  /** The worker that has the shard of an id. */
  async function workerOf(id: bigint): Promise<CitusWorker> {
    const [shard] = await cluster.run(
      `SELECT nodeport FROM citus_shards WHERE shardid = get_shard_id_for_distribution_column('plants', ${id})`,
    );
    const worker = (await cluster.workers()).find(({ port }) => port === shard?.["nodeport"]);
    if (worker === undefined) throw new Error("No worker");
    return worker;
  }

  /** Moves the shard of an id to another node. */
  async function moveShardOf(id: bigint): Promise<CitusWorker> {
    const [row] = await cluster.run(
      `SELECT get_shard_id_for_distribution_column('plants', ${id}) AS shard`,
    );
    const shard = Number(row?.["shard"]);
    const [from] = await cluster.run(
      `SELECT nodename, nodeport FROM citus_shards WHERE shardid = ${shard}`,
    );
    const to = (await cluster.workers()).find((worker) => worker.port !== from?.["nodeport"]);
    if (to === undefined) throw new Error("No other worker");
    await cluster.run(
      `SELECT citus_move_shard_placement(${shard}, '${from?.["nodename"]}', ${from?.["nodeport"]}, '127.0.0.1', ${to.port}, shard_transfer_mode => 'force_logical')`,
    );
    return to;
  }

  // The last ones: they make the tables anew.

  test("plants of a PostgreSQL that becomes a coordinator are refused until migrate distributes them", async () => {
    await cluster.empty();
    await postgresAdapter(url()).migrate({ dryRun: false });
    await cluster.run(insertOf(fern(), ivy({ id: -1n })));
    const message = "plants is not distributed by id: run plant-store migrate";
    await expect(adapter().openForServing({})).rejects.toThrow(message);
    await expect(adapter().openPlants()).rejects.toThrow(message);

    const dry = await adapter().migrate({ dryRun: true });
    expect(dry.map(({ tag }) => tag)).toEqual(["distribute_plants"]);
    expect(dry[0]?.script).toContain("create_distributed_table('plants', 'id', shard_count => 4");
    await expect(adapter().openPlants()).rejects.toThrow(message);

    await adapter().migrate({ dryRun: false });
    expect(await adapter().migrate({ dryRun: true })).toEqual([]);
    await using opened = await adapter().openPlants();
    expect(await pagesOf(opened)).toEqual([ivy({ id: -1n }), fern()]);
  });

  test("servers that start on an empty cluster at once distribute it once", async () => {
    await cluster.empty();
    const opened = await Promise.all([1, 2, 3].map(() => adapter().openForServing({})));
    const outcomes = await Promise.all(opened.map((each) => add(each.plants, [fern()])));
    expect(outcomes.flat().toSorted()).toEqual(["added", "present", "present"]);
    for (const each of opened) await each[Symbol.asyncDispose]();
  });
});
