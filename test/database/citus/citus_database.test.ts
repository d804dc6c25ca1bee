import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";

import type {
  DatabaseAdapter,
  DatabaseMetric,
  ServingOptions,
} from "../../../src/database/adapter.ts";
import { openCitus, serveCitus } from "../../../src/database/citus/citus_database.ts";
import { hashint8 } from "../../../src/database/citus/hash.ts";
import type { Database } from "../../../src/database/database.ts";
import { adapterOf } from "../../../src/database/databases.ts";
import { reach } from "../../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { groupCommit } from "../../../src/group_commit/group_commit.ts";
import type { NewPlant } from "../../../src/plant/plant.ts";
import { citusCluster, citusUrl, type CitusWorker, skipsCitus } from "../../support/citus.ts";
import { testDatabaseContract, testServingContract } from "../../support/database_contract.ts";
import { fern, insertOf, ivy, moss, TEXT } from "../../support/plants.ts";
import { databaseAt, waitingProcess } from "../../support/postgres.ts";
import {
  emptyDirectory,
  freePort,
  LONG_TEST_TIMEOUT_MS,
  TEST_TIMEOUT_MS,
} from "../../support/program.ts";
import { runCommand } from "../../support/stream_io.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const UNDISTRIBUTED =
  "plants is not distributed by id: stop the servers, and run create_distributed_table('plants', 'id') on the coordinator";

describe.skipIf(skipsCitus())("Citus", () => {
  let cluster: ReturnType<typeof citusCluster>;
  let database: Database;
  const url = () => parsePostgresUrl(cluster.url);
  const adapter = (of = cluster.url) => adapterOf(of);
  /** The adapter of the coordinator as a PostgreSQL. */
  const onPostgres = () => adapterOf(cluster.coordinatorUrl);
  const makeQueue: ServingOptions["makeQueue"] = (store, maxInFlight) =>
    groupCommit(store, { maxInFlight, timeoutMs: 10_000 });

  /** Opens the cluster for a command. */
  async function openPlants(): Promise<Database> {
    using reached = await reach(url());
    return await openCitus(reached);
  }

  beforeAll(async () => {
    cluster = citusCluster();
    await cluster.empty();
    await adapter().migrate({ dryRun: false });
    await cluster.distribute();
    database = await openPlants();
  });
  afterAll(async () => {
    await database[Symbol.asyncDispose]();
    await cluster[Symbol.asyncDispose]();
  });

  /** Opens the cluster for a server, and collects what the log would say. */
  async function open(options: Partial<ServingOptions> = {}) {
    const log: string[] = [];
    using reached = await reach(url());
    const opened = await serveCitus(reached, {
      makeQueue,
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
      makeQueue(store, maxInFlight) {
        queues++;
        return makeQueue(store, maxInFlight);
      },
    });
    const workers = await cluster.workers();
    await using worker = databaseAt(workers[0]?.url as string);
    const prepared = async () =>
      (await worker.run("SELECT gid FROM pg_dist_transaction")).map(({ gid }) => gid);
    // Citus removes those of earlier runs, sooner or later.
    const before = new Set(await prepared());
    const plants = Array.from({ length: 200 }, (_, id) => fern({ id }));
    await addAll(opened, plants);

    expect(queues).toBe(workers.length);
    expect((await prepared()).filter((gid) => !before.has(gid))).toEqual([]);
  });

  test("a plant whose node is down is unavailable; those of the others are stored, and a metric names the node", async () => {
    await cluster.removeRows();
    await using opened = await open({
      makeQueue: (store) => groupCommit(store, { timeoutMs: 1_500 }),
    });
    const workers = await cluster.workers();
    const [first] = workers;
    if (first === undefined) throw new Error("No worker");
    const plants = Array.from({ length: 20 }, (_, id) => fern({ id }));
    first.kill();

    const results = await Promise.allSettled(plants.map((plant) => opened.plants.add(plant)));
    for (; readyIn(opened.metrics())[first.id] !== 0; await Bun.sleep(20)) await opened.ready();
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
    for (; readyIn(opened.metrics())[first.id] !== 1; await Bun.sleep(20)) await opened.ready();
    await addAll(opened, plants);
    expect(await stored()).toEqual(plants);
    expect(new Set(Object.values(readyIn(opened.metrics())))).toEqual(new Set([1]));
  });

  /** The value of `plant_store_citus_node_ready` by its label. */
  function readyIn(metrics: readonly DatabaseMetric[]): Record<string, number> {
    const ready = metrics.filter(({ name }) => name === "plant_store_citus_node_ready");
    return Object.fromEntries(ready.map(({ labels, value }) => [labels?.["node"], value]));
  }

  test("each host of the coordinator has a metric of its own", async () => {
    const standby = `127.0.0.1:${freePort()}`;
    const hosts = parsePostgresUrl(cluster.url.replace(/(?=\/[^/]*$)/, `,${standby}`));
    using reached = await reach(hosts);
    await using opened = await serveCitus(reached, { makeQueue });

    const inUse = opened
      .metrics()
      .filter(({ name }) => name === "plant_store_postgres_host_in_use")
      .map(({ labels, value }) => [labels, value]);
    const { host } = new URL(cluster.coordinatorUrl);
    expect(inUse).toEqual([
      [{ host, node: "coordinator" }, 1],
      [{ host: standby, node: "coordinator" }, 0],
    ]);
  });

  test("without its coordinator a server stores plants", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const coordinator = await cluster.coordinator();
    coordinator.kill();
    try {
      expect(await opened.plants.add(fern())).toBe("added");
      await opened.ready();
    } finally {
      coordinator.restart();
    }
    expect(await opened.plants.add(fern())).toBe("present");
  });

  test("the tokens of the coordinator are listed", async () => {
    await cluster.removeRows();
    const digest = new Uint8Array(32);
    const { tokens } = database;
    await tokens.add({ name: "a", digest, createdAt: new Date(), expiresAt: null, scopes: [] });
    await using opened = await adapter().openForListing();
    expect(await opened.tokens.list()).toMatchObject([{ name: "a" }]);
  });

  test("import --tokens adds plants and tokens to the cluster, and those of the cluster to another database", async () => {
    await cluster.removeRows();
    using home = emptyDirectory();
    const [old, other] = [home.at("old.db"), home.at("other.db")];
    const run = (of: string, ...args: string[]) => runCommand(args, { DATABASE_URL: of });
    await run(old, "token", "create", "phone");
    await run(old, "token", "create", "leaked");
    await run(old, "token", "revoke", "leaked");
    {
      await using opened = await adapter(old).openForWriting();
      await opened.plants.add([fern(), ivy({ id: -1n })], { timeoutMs: TEST_TIMEOUT_MS });
    }

    for (const [from, to] of [
      [old, cluster.url],
      [cluster.url, other],
    ] as const) {
      expect(await run(to, "import", from, "--tokens")).toMatchObject({
        exitCode: 0,
        stderr: expect.stringContaining(
          'Tokens: 1 ("phone") made valid, 0 revoked, 0 refused\n2 added, 0 already there, 0 refused\n',
        ),
      });
      expect(await plantsOf(adapter(to))).toEqual([ivy({ id: -1n }), fern()]);
      expect((await run(to, "token", "list", "--json")).stdout).toBe(
        (await run(old, "token", "list", "--json")).stdout,
      );
    }

    await run(other, "token", "revoke", "phone");
    expect((await run(cluster.url, "import", other, "--tokens")).stderr).toBe(
      'Tokens: 0 made valid, 1 ("phone") revoked, 0 refused\n0 added, 2 already there, 0 refused\n',
    );
  });

  test("a worker's own URL is refused with the name of the remedy", async () => {
    const [worker] = await cluster.workers();
    const ofWorker = adapter(citusUrl(worker?.url as string));
    const message = `the server is worker ${worker?.id} of a Citus cluster; use the URL of its coordinator`;
    await expect(ofWorker.openForServing({ makeQueue })).rejects.toThrow(message);
    await expect(ofWorker.openForWriting({ create: true })).rejects.toThrow(message);
    await expect(ofWorker.openPlants()).rejects.toThrow(message);
    await expect(ofWorker.openForListing()).rejects.toThrow(message);
    await expect(ofWorker.migrate({ dryRun: true })).rejects.toThrow(message);
  });

  test("a node that may lose plants is refused by name", async () => {
    const [, second] = await cluster.workers();
    await using worker = databaseAt(second?.url as string);
    await worker.run("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()");
    try {
      while ((await worker.run("SHOW fsync"))[0]?.["fsync"] !== "off") await Bun.sleep(20);
      const name = `127.0.0.1:${second?.port}: fsync is off`;
      await expect(adapter().openForServing({ makeQueue })).rejects.toThrow(name);
    } finally {
      await worker.run("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()");
    }
  });

  test("right after a move, a plant is compared with its row, not with the table that the move has left over", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const plant = fern();
    await opened.plants.add(plant);

    // The map is read every three seconds: this one is old.
    await moveShardOf(plant.id);
    await cluster.run(`UPDATE plants SET "${TEXT}" = 'Ivy' WHERE id = 1`);
    expect(await addAll(opened, [plant, { ...plant, [TEXT]: "Ivy" }])).toEqual([
      "conflict",
      "present",
    ]);
  });

  test("right after a move, a plant that is found waits for the synchronous standby of the new node", async () => {
    await cluster.removeRows();
    await using opened = await open({
      makeQueue: (store) => groupCommit(store, { timeoutMs: 1_000 }),
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

  test("once citus_update_node names another address, no connection to the old one is used", async () => {
    await cluster.removeRows();
    await using opened = await open();
    const [worker] = await cluster.workers();
    if (worker === undefined) throw new Error("No worker");
    using proxy = startProxy(worker.port);
    const plants = Array.from({ length: 20 }, (_, id) => fern({ id }));
    await addAll(opened, plants);

    await using server = databaseAt(worker.url);
    const [now] = await server.run("SELECT now()::text AS time");
    /** When a session was last used that began before, or since. */
    const usedAt = async (began: "<" | ">") => {
      const [row] = await server.run(
        `SELECT max(query_start)::text AS time FROM pg_stat_activity
        WHERE application_name = 'plant-store' AND backend_start ${began} '${now?.["time"]}'`,
      );
      return row?.["time"] ?? undefined;
    };
    const update = async (from: number, to: number) =>
      await cluster.run(
        `SELECT citus_update_node(nodeid, '127.0.0.1', ${to}) FROM pg_dist_node WHERE nodeport = ${from}`,
      );

    await update(worker.port, proxy.port);
    try {
      while ((await usedAt(">")) === undefined) await addAll(opened, plants);
      const before = await usedAt("<");
      await addAll(opened, plants);
      expect(await usedAt("<")).toBe(before);
    } finally {
      await update(proxy.port, worker.port);
      const isBehind = "SELECT FROM pg_dist_node WHERE NOT metadatasynced";
      while ((await cluster.run(isBehind)).length > 0) await Bun.sleep(100);
    }
  });

  // The last ones: they make the tables anew.

  test("plants that are on PostgreSQL are served from there until they are distributed; each URL refuses the others", async () => {
    await cluster.empty();
    await onPostgres().migrate({ dryRun: false });
    await cluster.run(insertOf(fern(), ivy({ id: -1n })));
    await using before = await onPostgres().openForServing({ makeQueue });
    expect(await before.plants.add(fern())).toBe("present");
    for (const create of [false, true])
      await expect(adapter().openForServing({ makeQueue, create })).rejects.toThrow(UNDISTRIBUTED);
    await expect(adapter().openPlants()).rejects.toThrow(UNDISTRIBUTED);
    expect(await adapter().migrate({ dryRun: true })).toEqual([]);
    await before.ready();

    await cluster.distribute();
    expect(await plantsOf(adapter())).toEqual([ivy({ id: -1n }), fern()]);

    const distributed = "Citus has distributed its plants: use its URL with the scheme citus";
    await expect(onPostgres().openForServing({ makeQueue })).rejects.toThrow(distributed);
    await expect(onPostgres().openForWriting()).rejects.toThrow(distributed);
    await expect(onPostgres().openPlants()).rejects.toThrow(distributed);
    const unavailable = {
      code: "storage_unavailable",
      cause: expect.objectContaining({
        message: expect.stringContaining(
          "if Citus has distributed them, use the URL with the scheme",
        ),
      }),
    };
    await expect(before.plants.add(fern())).rejects.toMatchObject(unavailable);
    await expect(before.ready()).rejects.toMatchObject(unavailable);
  });

  test("the way back to PostgreSQL is to stop, undistribute_table, and start with a URL of postgres://", async () => {
    await cluster.empty();
    await adapter().migrate({ dryRun: false });
    await cluster.distribute();
    {
      await using opened = await open();
      expect(await addAll(opened, [fern(), moss({ id: 2n })])).toEqual(["added", "added"]);
    }

    await cluster.run("SELECT undistribute_table('plants')");

    await using opened = await onPostgres().openForServing({ makeQueue });
    expect(await opened.plants.add(fern())).toBe("present");
    expect(await opened.plants.add(ivy({ id: 3n }))).toBe("added");
    expect(await plantsOf(onPostgres())).toEqual([fern(), moss({ id: 2n }), ivy({ id: 3n })]);
    expect(await cluster.run("SELECT count(*)::int AS shards FROM citus_shards")).toEqual([
      { shards: 0 },
    ]);
  });

  async function plantsOf(of: DatabaseAdapter): Promise<readonly NewPlant[]> {
    await using opened = await of.openPlants();
    return (await Array.fromAsync(opened.pages())).flat();
  }

  test("a start on an empty cluster makes the tables, if it may, and says what distributes the plants", async () => {
    await cluster.empty();
    const server = adapter();
    await expect(server.openForServing({ makeQueue })).rejects.toThrow("run plant-store migrate");
    await expect(server.openForServing({ create: true, makeQueue })).rejects.toThrow(UNDISTRIBUTED);

    await cluster.run("SELECT create_reference_table('plants')");
    await expect(server.openForServing({ makeQueue })).rejects.toThrow(UNDISTRIBUTED);
    await cluster.run("SELECT undistribute_table('plants')");

    await cluster.distribute();
    await using opened = await server.openForServing({ makeQueue });
    expect(await opened.plants.add(fern())).toBe("added");
  });
});
