import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";

import type { DatabaseMetric, ServingOptions } from "../../../src/database/adapter.ts";
import {
  type CitusServingOptions,
  openCitus,
  serveCitus,
} from "../../../src/database/citus/citus_database.ts";
import { hashint8 } from "../../../src/database/citus/hash.ts";
import type { Database } from "../../../src/database/database.ts";
import { adapterOf } from "../../../src/database/location.ts";
import { postgresAdapter } from "../../../src/database/postgres/postgres_adapter.ts";
import { reach } from "../../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { groupCommit } from "../../../src/group_commit/group_commit.ts";
import type { NewPlant } from "../../../src/plant/plant.ts";
import { citusCluster, type CitusWorker, skipsCitus } from "../../support/citus.ts";
import { testDatabaseContract, testServingContract } from "../../support/database_contract.ts";
import { fern, insertOf, ivy } from "../../support/plants.ts";
import { databaseAt, waitingProcess } from "../../support/postgres.ts";
import { LONG_TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

describe.skipIf(skipsCitus())("Citus", () => {
  let cluster: ReturnType<typeof citusCluster>;
  let database: Database;
  const url = () => parsePostgresUrl(cluster.url);
  const adapter = (of = cluster.url) =>
    adapterOf({ adapter: "postgres", url: parsePostgresUrl(of) });
  const gather: ServingOptions["gather"] = (store, maxInFlight) =>
    groupCommit(store, { maxInFlight, timeoutMs: 10_000 });

  /** Opens the cluster for a command. */
  async function openPlants(): Promise<Database> {
    using reached = await reach(url());
    return await openCitus(reached);
  }

  beforeAll(async () => {
    cluster = citusCluster();
    await cluster.empty();
    await (await adapter()).migrate({ dryRun: false });
    database = await openPlants();
  });
  afterAll(async () => {
    await database[Symbol.asyncDispose]();
    await cluster[Symbol.asyncDispose]();
  });

  /** Opens the cluster for a server, and collects what the log would say. */
  async function open(options: Partial<CitusServingOptions> = {}) {
    const log: string[] = [];
    using reached = await reach(url());
    const opened = await serveCitus(reached, {
      gather,
      onInfo: (message) => void log.push(message),
      onWarning: (message) => void log.push(message),
      ...options,
    });
    return Object.assign(opened, { log });
  }

  /** Adds plants, and resolves to their outcomes. */
  const addAll = (
    { plants: queue }: Awaited<ReturnType<typeof open>>,
    plants: readonly NewPlant[],
  ) => Promise.all(plants.map((plant) => queue.add(plant)));

  async function stored(): Promise<readonly NewPlant[]> {
    return (await Array.fromAsync(database.pages())).flat();
  }

  testDatabaseContract(
    "openCitus()",
    async () => {
      await cluster.removeRows();
      return { ...database, async [Symbol.asyncDispose]() {} };
    },
    openPlants,
  );
  testServingContract("serveCitus()", async (options) => {
    await cluster.removeRows();
    using reached = await reach(url());
    return await serveCitus(reached, options);
  });

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

  test("each node has a queue of its own, which stores its plants on it, and no transaction has two phases", async () => {
    await cluster.removeRows();
    let queues = 0;
    await using opened = await open({
      gather(store, maxInFlight) {
        queues++;
        return gather(store, maxInFlight);
      },
    });
    const plants = Array.from({ length: 200 }, (_, id) => fern({ id: BigInt(id) }));
    await addAll(opened, plants);

    expect(queues).toBe((await cluster.workers()).length);
    await using worker = databaseAt((await cluster.workers())[0]?.url as string);
    expect(await worker.run("SELECT FROM pg_dist_transaction")).toEqual([]);
  });

  test("a plant whose node is down is unavailable; those of the others are stored, and readiness names the node", async () => {
    await cluster.removeRows();
    await using opened = await open({
      gather: (store) => groupCommit(store, { timeoutMs: 1_500 }),
    });
    const workers = await cluster.workers();
    const [first] = workers;
    if (first === undefined) throw new Error("No worker");
    const plants = Array.from({ length: 20 }, (_, id) => fern({ id: BigInt(id) }));
    first.kill();

    const results = await Promise.allSettled(plants.map((plant) => opened.plants.add(plant)));
    while ((await opened.ready()).length === 0) await Bun.sleep(20);
    expect(await opened.ready()).toEqual([`node ${first.id}`]);
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
    while ((await opened.ready()).length > 0) await Bun.sleep(20);
    await addAll(opened, plants);
    expect(await stored()).toEqual(plants);
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
      expect(await opened.plants.add(fern())).toBe("added");
      expect(await opened.ready()).toEqual([]);
      while (opened.log.length < 2) await Bun.sleep(50);
      expect(opened.log[1]).toMatch(
        /^Coordinator does not respond: plants are stored, but tokens that are revoked after .*Z are accepted$/,
      );

      const refusal = () =>
        opened.ready().then(
          () => undefined,
          (error: Error) => error.message,
        );
      while ((await refusal()) === undefined) await Bun.sleep(50);
      expect(await refusal()).toBe("storage has not seen its coordinator for too long");
      expect(await opened.plants.add(fern({ id: 2n }))).toBe("added");
    } finally {
      coordinator.restart();
    }
    while (opened.log.length < 3) await Bun.sleep(50);
    expect(opened.log[2]).toBe("Coordinator is back: revoked tokens are refused again");
    expect(await opened.ready()).toEqual([]);
  });

  test("a worker's own URL is refused with the name of the remedy", async () => {
    const [worker] = await cluster.workers();
    const ofWorker = await adapter(worker?.url);
    const message = `the server is worker ${worker?.id} of a Citus cluster; use the URL of its coordinator`;
    await expect(ofWorker.openForServing({ gather })).rejects.toThrow(message);
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
        await expect((await adapter()).openForServing({ gather })).rejects.toThrow(name);
      } finally {
        await worker.run(`ALTER SYSTEM RESET ${setting}`, "SELECT pg_reload_conf()");
      }
    }
  });

  test("right after a move, a plant is compared with its row, not with the table that the move has left over", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const plant = fern();
    await opened.plants.add(plant);

    // The map is read every three seconds: this one is old.
    await moveShardOf(plant.id);
    await cluster.run("UPDATE plants SET name = 'Ivy' WHERE id = 1");
    expect(await addAll(opened, [plant, { ...plant, name: "Ivy" }])).toEqual([
      "conflict",
      "present",
    ]);
  });

  test("right after a move, a plant that is found waits for the synchronous standby of the new node", async () => {
    await cluster.removeRows();
    await using opened = await open({
      gather: (store) => groupCommit(store, { timeoutMs: 1_000 }),
    });
    const plant = fern();
    await opened.plants.add(plant);
    const to = await moveShardOf(plant.id);
    {
      await using _ = await withoutStandby(to);
      await expect(opened.plants.add(plant)).rejects.toMatchObject({ code: "storage_unavailable" });
    }
    expect(await opened.plants.add(plant)).toBe("present");
  });

  test("an export shows no plant that the synchronous standby of its node may not have", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const plant = fern();
    await using standby = await withoutStandby(await workerOf(plant.id));

    const adding = opened.plants.add(plant);
    const ended = await waitingProcess(standby);
    await standby.run(`SELECT pg_terminate_backend(${ended})`);
    const again = await waitingProcess(standby, ended);

    const page = database.pages()[Symbol.asyncIterator]().next();
    expect(await Promise.race([page, waitingProcess(standby, ended, again)])).toBeNumber();

    await standby.regain();
    expect(await page).toEqual({ done: false, value: [plant] });
    expect(await adding).toBe("present");
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
    await expect((await adapter()).openForServing({ gather })).rejects.toThrow(message);
    await expect((await adapter()).openPlants()).rejects.toThrow(message);

    const dry = await (await adapter()).migrate({ dryRun: true });
    expect(dry.map(({ tag }) => tag)).toEqual(["distribute_plants"]);
    expect(dry[0]?.script).toContain("create_distributed_table('plants', 'id', shard_count => 4");
    await expect((await adapter()).openPlants()).rejects.toThrow(message);

    await (await adapter()).migrate({ dryRun: false });
    expect(await (await adapter()).migrate({ dryRun: true })).toEqual([]);
    await using opened = await (await adapter()).openPlants();
    expect((await Array.fromAsync(opened.pages())).flat()).toEqual([ivy({ id: -1n }), fern()]);
  });

  test("servers that start on an empty cluster at once distribute it once", async () => {
    await cluster.empty();
    const server = await adapter();
    const opened = await Promise.all(
      [1, 2, 3].map(() => server.openForServing({ create: true, gather })),
    );
    const outcomes = await Promise.all(opened.map((each) => each.plants.add(fern())));
    expect(outcomes.toSorted()).toEqual(["added", "present", "present"]);
    for (const each of opened) await each[Symbol.asyncDispose]();
  });
});
