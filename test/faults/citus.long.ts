/** What becomes of plants on a real Citus cluster while its servers die, move and are replaced. */
import {
  afterAll,
  beforeAll,
  beforeEach,
  describe,
  expect,
  setDefaultTimeout,
  test,
} from "bun:test";

import { openCitus } from "../../src/database/citus/citus_database.ts";
import { adapterOf } from "../../src/database/databases.ts";
import { reach } from "../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl } from "../../src/database/postgres/url.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { citusCluster, type CitusWorker, skipsCitus } from "../support/citus.ts";
import { TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { table } from "../support/guides.ts";
import { INTACT, makeLedger, printed, type Verdict } from "../support/ledger.ts";
import { newPlants, printedSeed, randomFrom, startLoad } from "../support/load.ts";
import { mutant } from "../support/mutant.ts";
import { databaseAt } from "../support/postgres.ts";
import { LONG_TEST_TIMEOUT_MS, startServer } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { get } from "./health.ts";
import { record, type World } from "./linearizability.ts";
import { SYNCHRONOUS_COMMIT_OFF } from "./mutations.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const TIMEOUT_MS = 5_000;

/** Makes the tables of a cluster anew, with the plants distributed. */
async function makeTables(cluster: ReturnType<typeof citusCluster>): Promise<void> {
  await cluster.empty().catch(cluster.empty);
  await adapterOf(cluster.url).migrate({ dryRun: false });
  await cluster.distribute();
}

describe.skipIf(skipsCitus())("a Citus cluster", () => {
  let cluster: ReturnType<typeof citusCluster>;
  beforeAll(() => void (cluster = citusCluster()));
  beforeEach(() => makeTables(cluster));
  afterAll(() => cluster[Symbol.asyncDispose]());

  const startOne = (program: readonly string[]) =>
    startServer({
      program,
      env: {
        DATABASE_URL: cluster.url,
        AUTH_TOKENS: TOKEN,
        REQUEST_TIMEOUT_MS: String(TIMEOUT_MS),
      },
    });

  /** Plants without a rival, and some of them again: no 409 is right. */
  function source(experiment: string) {
    const fresh = newPlants(experiment);
    const random = randomFrom(printedSeed(`${experiment}, again`));
    const sent: NewPlant[] = [];
    return () => {
      if (sent.length > 0 && random() < 0.1)
        return sent[Math.floor(random() * sent.length)] as NewPlant;
      const plant = fresh();
      sent.push(plant);
      return plant;
    };
  }

  /** Loads servers while something happens, and judges what is stored. */
  async function underLoad(
    experiment: string,
    happens: (world: {
      readonly servers: Awaited<ReturnType<typeof startServer>>[];
      answers(count: number): Promise<void>;
      /** The longest time without a 200 since the last call, in milliseconds. */
      gapMs(): number;
      replace(): Promise<void>;
    }) => Promise<unknown>,
    program: readonly string[] = executable(),
  ): Promise<Verdict & { readonly responses: Record<string, number> }> {
    await using stack = new AsyncDisposableStack();
    const ledger = makeLedger();
    const next = source(experiment);
    const servers: Awaited<ReturnType<typeof startServer>>[] = [];
    const loads: ReturnType<typeof startLoad>[] = [];

    async function start(): Promise<void> {
      const server = stack.use(await startOne(program));
      servers.push(server);
      loads.push(startLoad({ url: server.url, connections: 24, ledger, next }));
    }
    await start();
    await start();

    let longest = 0;
    let last = performance.now();
    let before = 0;
    const watch = setInterval(() => {
      const acknowledged = ledger.acknowledgements();
      if (acknowledged > before) last = performance.now();
      before = acknowledged;
      longest = Math.max(longest, performance.now() - last);
    }, 5);

    const answered = () => loads.reduce((sum, load) => sum + load.answered(), 0);
    const answers = async (count: number) => {
      const enough = answered() + count;
      while (answered() < enough) await Bun.sleep(2);
    };
    await answers(500);
    await happens({
      servers,
      answers,
      gapMs() {
        const gap = Math.round(longest);
        longest = 0;
        return gap;
      },
      async replace() {
        servers.shift()?.child.kill("SIGKILL");
        await start();
      },
    });
    await answers(500);
    clearInterval(watch);

    const reports = await Promise.all(loads.map((load) => load.stop()));
    const responses: Record<string, number> = {};
    for (const report of reports) {
      expect(report.wrong).toBe(0);
      for (const [verdict, count] of Object.entries(report.responses))
        responses[verdict] = (responses[verdict] ?? 0) + count;
    }
    using reached = await reach(parsePostgresUrl(cluster.url));
    await using database = await openCitus(reached);
    // What a worker had prepared for another one may come later.
    const recover = () => cluster.run("SELECT recover_prepared_transactions()");
    await recover().catch(recover);
    for (const plant of ledger.unknown()) {
      const [outcome] = await database.plants.add([plant], { timeoutMs: 20_000 });
      expect(outcome).not.toBe("conflict");
      if (outcome !== "unavailable") ledger.acknowledge(plant);
    }
    const plants = (await Array.fromAsync(database.pages())).flat();
    const size = `${ledger.attempts()} sent, ${ledger.acknowledgements()} acknowledged, ${JSON.stringify(responses)}`;
    return { ...printed(experiment, size, ledger.judgePlants(plants)), responses };
  }

  /** Nothing else than 200 and 503. */
  function requireIntact({ responses, ...verdict }: Awaited<ReturnType<typeof underLoad>>): void {
    expect(verdict).toEqual(INTACT);
    expect(
      Object.keys(responses).filter((each) => !["200", "503/5032", "503/5033"].includes(each)),
    ).toEqual([]);
  }

  const worker = async (index: number) => (await cluster.workers())[index] as CitusWorker;

  test("kill -9 of workers, the coordinator and a server, under load, loses and changes no plant", async () => {
    const [first, second] = [await worker(0), await worker(1)];
    const coordinator = await cluster.coordinator();
    const found = await underLoad("kills on Citus", async ({ answers, replace }) => {
      for (let round = 0; round < scaled(1, 3); round++) {
        for (const server of [first, second, coordinator]) {
          server.kill();
          await Bun.sleep(300);
          server.restart();
          await answers(2_000);
        }
        await replace();
        await answers(2_000);
      }
    });
    requireIntact(found);
  });

  test("with synchronous_commit off, unnoticed by the checks, kill -9 of a worker loses acknowledged plants", async () => {
    using copy = mutant(SYNCHRONOUS_COMMIT_OFF);
    const first = await worker(0);
    await using database = databaseAt(first.url);
    await database.run("ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()");
    // Something else may have written the WAL just before a kill.
    const killThrice = async ({ answers }: { answers(count: number): Promise<void> }) => {
      for (let times = 0; times < 3; times++) {
        await answers(500);
        first.kill();
        first.restart();
      }
    };
    const { lost } = await underLoad("control: synchronous_commit off", killThrice, copy.program);
    await database.run("SELECT 1").catch(() => database.run("SELECT 1"));
    await database.run("ALTER SYSTEM RESET wal_writer_delay", "SELECT pg_reload_conf()");
    expect(lost).toBeGreaterThan(0);
  });

  test("while the coordinator is away plants are stored without a 503", async () => {
    const coordinator = await cluster.coordinator();
    const found = await underLoad("coordinator away", async ({ answers, gapMs, servers }) => {
      gapMs();
      coordinator.kill();
      await Bun.sleep(scaled(3_000, 13_000));
      await answers(2_000);
      for (const { url } of servers) expect(await get(url, "/readyz")).toBe("200");
      coordinator.restart();
      console.log(`| coordinator away | longest gap ${gapMs()} ms |`);
    });
    requireIntact(found);
    expect(Object.keys(found.responses)).toEqual(["200"]);
  });

  test("a worker's synchronous standby is promoted in its place, and no plant is lost", async () => {
    // A worker of its own: the old primary of a promoted standby is of no more use.
    await using old = await cluster.addWorker();
    await cluster.run(
      "SELECT rebalance_table_shards('plants', shard_transfer_mode => 'block_writes')",
    );
    using standby = await cluster.addStandby(old);
    const [node] = await cluster.run(
      `SELECT nodeid FROM pg_dist_node WHERE nodeport = ${old.port}`,
    );

    const found = await underLoad("promotion of a standby", async ({ answers, gapMs }) => {
      gapMs();
      old.kill();
      await using promoted = databaseAt(standby.url);
      await promoted.run("SELECT pg_promote()");
      await cluster.run(
        `SELECT citus_update_node(${node?.["nodeid"]}, '127.0.0.1', ${standby.port}, true)`,
      );
      await answers(3_000);
      console.log(`| promotion | longest gap ${gapMs()} ms |`);
    });
    requireIntact(found);

    await cluster.empty().catch(cluster.empty);
    await cluster.run(`SELECT citus_remove_node('127.0.0.1', ${standby.port})`);
  });

  /** What the page calls safe beside servers, apart from the failover above: as SQL, in a mode. */
  const SAFE: Readonly<Record<string, (mode: string) => Promise<string>>> = {
    async citus_move_shard_placement(mode) {
      const { shard, from, to } = await aShard();
      return `citus_move_shard_placement(${shard}, '127.0.0.1', ${from}, '127.0.0.1', ${to}, '${mode}')`;
    },
    rebalance_table_shards: async (mode) =>
      `rebalance_table_shards('plants', shard_transfer_mode => '${mode}')`,
    async citus_drain_node(mode) {
      const { from } = await aShard();
      return `citus_drain_node('127.0.0.1', ${from}, shard_transfer_mode => '${mode}'),
        citus_set_node_property('127.0.0.1', ${from}, 'shouldhaveshards', true)`;
    },
    async citus_split_shard_by_split_points(mode) {
      const { shard, middle } = await aShard();
      return `citus_split_shard_by_split_points(${shard}, ARRAY['${middle}'],
        (SELECT array_agg(nodeid) FROM (SELECT nodeid FROM pg_dist_node WHERE groupid > 0 ORDER BY nodeid LIMIT 2) AS nodes), '${mode}')`;
    },
    isolate_tenant_to_new_shard: async (mode) =>
      `isolate_tenant_to_new_shard('plants', ${mode === "block_writes" ? 1 : 2}, shard_transfer_mode => '${mode}')`,
    update_distributed_table_colocation: async () =>
      "update_distributed_table_colocation('plants', colocate_with => 'none')",
  };

  /** The largest shard, with the ports of its node and of another one. */
  async function aShard() {
    const [row] = await cluster.run(
      `SELECT shardid AS shard, nodeport AS from,
        shardminvalue::int + (shardmaxvalue::bigint - shardminvalue::bigint) / 2 AS middle
      FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
      WHERE logicalrelid = 'plants'::regclass AND noderole = 'primary'
      ORDER BY shardmaxvalue::bigint - shardminvalue::bigint DESC, shardid LIMIT 1`,
    );
    const to = (await cluster.workers()).find(({ port }) => port !== row?.["from"])?.port;
    return { shard: row?.["shard"], from: row?.["from"], middle: row?.["middle"], to };
  }

  test("what the page calls safe beside servers loses no plant, in every mode", async () => {
    const rows = table("While servers run").filter(([, verdict]) => verdict?.startsWith("safe"));
    const listed = rows.flatMap(([names = ""]) => names.match(/\w+/g) ?? []);
    expect(listed.toSorted()).toEqual([...Object.keys(SAFE), "citus_update_node"].toSorted());

    const found = await underLoad("safe beside servers", async ({ answers }) => {
      for (const mode of ["force_logical", "block_writes"])
        for (const statement of Object.values(SAFE)) {
          await cluster.run(`SELECT ${await statement(mode)}`);
          await answers(300);
        }
    });
    requireIntact(found);
  });

  test("the control: alter_distributed_table beside servers loses what they store while it copies", async () => {
    const { lost } = await underLoad("control: alter_distributed_table", async ({ answers }) => {
      // It has copied the table, and waits to remove the old one.
      await using reader = databaseAt(cluster.coordinatorUrl).connect();
      await reader.unsafe("BEGIN");
      await reader.unsafe("SELECT FROM plants LIMIT 1");
      const altering = cluster.run("SELECT alter_distributed_table('plants', shard_count => 6)");

      await using watcher = databaseAt(cluster.coordinatorUrl);
      const waiting = "SELECT FROM pg_locks WHERE relation = 'plants'::regclass AND NOT granted";
      while ((await watcher.run(waiting)).length === 0) await Bun.sleep(20);
      await answers(500);
      await reader.unsafe("COMMIT");
      await altering;
    });
    expect(lost).toBeGreaterThan(0);
  });

  test("a worker is added, takes its share under load, and leaves again", async () => {
    await using one = await cluster.addWorker();
    const found = await underLoad("more workers", async ({ answers, gapMs }) => {
      gapMs();
      await cluster.run(
        "SELECT rebalance_table_shards('plants', shard_transfer_mode => 'force_logical')",
      );
      await answers(2_000);
      expect(
        (await cluster.run(`SELECT FROM citus_shards WHERE nodeport = ${one.port}`)).length,
      ).toBeGreaterThan(0);
      await cluster.run(
        `SELECT citus_drain_node('127.0.0.1', ${one.port}, shard_transfer_mode => 'force_logical')`,
      );
      // Servers read the map every three seconds. Until then, the node forwards their plants.
      await Bun.sleep(5_000);
      await cluster.run(`SELECT citus_remove_node('127.0.0.1', ${one.port})`);
      one.kill();
      await answers(2_000);
      console.log(`| a worker added, rebalanced, drained, removed | longest gap ${gapMs()} ms |`);
    });
    requireIntact(found);
    expect(Object.keys(found.responses)).toEqual(["200"]);
  });
});

type Cluster = ReturnType<typeof citusCluster>;

const ON_CITUS: Readonly<
  Record<string, (cluster: Cluster, random: () => number) => Promise<unknown>>
> = {
  async "a killed worker"(cluster, random) {
    const workers = await cluster.workers();
    const worker = workers[Math.floor(random() * workers.length)];
    worker?.kill();
    worker?.restart();
  },

  async "a killed coordinator"(cluster) {
    const coordinator = await cluster.coordinator();
    coordinator.kill();
    await Bun.sleep(500);
    coordinator.restart();
  },

  async "a moved shard"(cluster, random) {
    const shards = await cluster.run(
      "SELECT shardid, nodeport FROM citus_shards WHERE table_name = 'plants'::regclass",
    );
    const shard = shards[Math.floor(random() * shards.length)];
    const to = (await cluster.workers()).find(({ port }) => port !== shard?.["nodeport"]);
    await cluster.run(
      `SELECT citus_move_shard_placement(${shard?.["shardid"]}, '127.0.0.1', ${shard?.["nodeport"]}, '127.0.0.1', ${to?.port}, shard_transfer_mode => 'force_logical')`,
    );
  },
};

test.skipIf(skipsCitus()).each(Object.entries(ON_CITUS))(
  "Citus with %s is linearizable",
  async (name, fault) => {
    await using cluster = citusCluster();
    await makeTables(cluster);
    const found = await record(name, ({ random }: World) => fault(cluster, random), {
      url: cluster.url,
      servers: 2,
    });
    expect(found).toEqual([]);
  },
);
