import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { NewPlant } from "../../src/plant/plant.ts";
import { INTACT, makeLedger, printed } from "../support/ledger.ts";
import { printedSeed, randomFrom, randomPlants } from "../support/load.ts";
import { type PostgresCluster, skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_hooks.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { startProxy } from "../support/tcp_proxy.ts";
import { judge, openService, startAdding, through, WAITING } from "./postgres.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const FERN = { id: 1n, name: "Fern" };
const MOSS = { id: 2n, name: "Moss" };

const next = (experiment: string) => randomPlants(randomFrom(printedSeed(experiment)), { ids: 5_000, longest: 500 });

describe.skipIf(skipsCluster())("on PostgreSQL", () => {
  let cluster: PostgresCluster;
  withCluster((started) => (cluster = started), {
    settings: { deadlock_timeout: "100ms", max_connections: "200" },
  });

  test.concurrent("whether tokens changed is asked again sooner than other reading is given up", async () => {
    const { url, run } = await cluster.newDatabase();
    await using one = await openService(url);
    await using other = await openService(url);
    const revisions = await Promise.all([one, other].map(({ database }) => database.tokens.revision()));
    const reading = await run(
      `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^select "revision"'`,
    );
    const pids = reading.map(({ pid }) => Number(pid));
    expect(pids).toHaveLength(2);
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    try {
      const listed = one.database.tokens.list().catch((error) => error);
      const asked = other.database.tokens.revision();
      await expect(asked).rejects.toMatchObject({ code: "storage_unavailable" });
      expect(await Promise.race([listed, other.database.tokens.revision()])).toBe(revisions[1]);
    } finally {
      for (const pid of pids) process.kill(pid, "SIGCONT");
    }
  });

  test.concurrent("a host that is silent is asked once, as long as another one responds", async () => {
    const { url } = await cluster.newDatabase();
    let asked = 0;
    const socket = { open: () => void asked++, data() {} };
    using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
    const hosts = `127.0.0.1:${silent.port},127.0.0.1:${cluster.port}`;
    await using service = await openService(url.replace(`127.0.0.1:${cluster.port}`, hosts));
    const { plants } = service.database;
    const addFour = () =>
      Promise.all(
        [1n, 2n, 3n, 4n].map((id) => plants.add([{ id, name: "Fern" }], { timeoutMs: LONG_TEST_TIMEOUT_MS })),
      );
    expect(await addFour()).toEqual([["added"], ["added"], ["added"], ["added"]]);
    // The first that connects may serve all, and one that cannot in time connects again for a later plant only.
    while (service.metric("connections") !== 4) await addFour();
    expect(asked).toBe(1);
  });

  test.concurrent("a database that stays read-only is asked less and less often", async () => {
    const { name, url, run } = await cluster.newDatabase();
    await using service = await openService(url);
    await service.add(FERN);
    const sessions = async () =>
      Number((await run(`SELECT sessions::int FROM pg_stat_database WHERE datname = '${name}'`))[0]?.["sessions"]);
    const others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()";
    await run(
      `ALTER DATABASE ${name} SET default_transaction_read_only = on`,
      `SELECT pg_terminate_backend(pid) ${others}`,
    );
    const before = await sessions();
    const added = service.database.plants.add([MOSS], { timeoutMs: 4_500 });
    await expect(added).rejects.toMatchObject({ message: expect.stringContaining("storage is read-only") });
    // With pauses of a quarter of a second at most there are twenty.
    expect((await sessions()) - before).toBeLessThan(14);
  });

  test.concurrent("of plants that are too long for one batch those are stored that nothing holds up", async () => {
    const { url, connect } = await cluster.newDatabase();
    await using service = await openService(url, { timeoutMs: 3_000 });
    await using rival = connect();
    await rival.unsafe("BEGIN; INSERT INTO plants VALUES (1, 'Fern')").simple();
    const name = "x".repeat(600_000);
    const adds = [0n, 1n, 2n, 3n].map((id) => service.add({ id, name }).catch((error) => error));
    const outcomes = await Promise.all(adds);
    expect(outcomes).toMatchObject(["added", { code: "storage_unavailable" }, "added", "added"]);
    await rival.unsafe("COMMIT");
    expect(await Promise.all([0n, 1n, 2n].map((id) => service.add({ id, name })))).toEqual([
      "present",
      "conflict",
      "present",
    ]);
  });

  test.concurrent(
    "a probe waits for no other server's, and costs the plants no connection where commits are slow",
    async () => {
      const { url, connect, run } = await cluster.newDatabase();
      await using service = await openService(url);
      const { plants } = service.database;
      expect(await plants.add([FERN], { timeoutMs: LONG_TEST_TIMEOUT_MS })).toEqual(["added"]);
      await using rival = connect();
      await rival.unsafe("BEGIN; INSERT INTO probes VALUES (1, now())").simple();
      // Each writes a row of 64 at random, which may be the rival's.
      await Promise.any([1, 2, 3].map(() => plants.probe()));
      await rival.unsafe("COMMIT");
      // Between the second that a probe has, which a busy machine extends, and the third, when its connection is closed.
      await run(
        "CREATE OR REPLACE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); RETURN NEW; END'",
        "CREATE TRIGGER be_slow BEFORE INSERT ON probes FOR EACH ROW EXECUTE FUNCTION be_slow()",
      );
      await expect(plants.probe()).rejects.toMatchObject({
        code: "storage_unavailable",
        message: "storage did not finish in time; the plant may or may not be stored, send it again later",
      });
      while (service.metric("connections_busy") > 0) await Bun.sleep(5);
      expect(await plants.add([MOSS], { timeoutMs: LONG_TEST_TIMEOUT_MS })).toEqual(["added"]);
      expect(service.metric("reconnections_total")).toBe(0);
    },
  );

  test.concurrent("a lock on what the probe writes keeps no plant waiting", async () => {
    const { url, connect } = await cluster.newDatabase();
    await using service = await openService(url);
    const { plants } = service.database;
    await using rival = connect();
    await rival.unsafe("BEGIN; LOCK TABLE probes").simple();
    const probes = await Promise.allSettled([1, 2, 3, 4].map(() => plants.probe()));
    for (const probe of probes) expect(probe).toMatchObject({ reason: { code: "storage_unavailable" } });
    const adds = [1n, 2n, 3n, 4n].map((id) => plants.add([{ id, name: "Fern" }], { timeoutMs: 10_000 }));
    expect(await Promise.all(adds)).toEqual([["added"], ["added"], ["added"], ["added"]]);
    await rival.unsafe("COMMIT");
    await plants.probe();
  });

  test.concurrent("plants are exported while writing tokens waits for a lock", async () => {
    const { url, connect, run } = await cluster.newDatabase();
    await using service = await openService(url);
    const { plants, tokens, pages } = service.database;
    await plants.add([FERN], { timeoutMs: LONG_TEST_TIMEOUT_MS });
    const createdAt = new Date("2026-01-01T00:00:00.001Z");
    await tokens.add({ name: "gate", digest: new Uint8Array(32), createdAt, expiresAt: null, scopes: [] });
    await using rival = connect();
    await rival.unsafe("BEGIN; SELECT FROM tokens FOR UPDATE").simple();
    const recorded = tokens.recordUses([{ name: "gate", at: createdAt }]);
    while ((await run(WAITING)).length === 0) await Bun.sleep(5);
    expect(await Array.fromAsync(pages())).toEqual([[FERN]]);
    expect(await tokens.list()).toMatchObject([{ name: "gate", lastUsedAt: null }]);
    await rival.unsafe("COMMIT");
    await recorded;
    expect(await tokens.list()).toMatchObject([{ name: "gate", lastUsedAt: createdAt }]);
  });

  /** Adds plants while something happens to the connections, and judges the database. */
  async function underLoad(
    experiment: string,
    { url, timeoutMs }: { readonly url: string; readonly timeoutMs?: number },
    disturb: (load: ReturnType<typeof startAdding>) => Promise<void>,
  ) {
    const began = performance.now();
    await using service = await openService(url, { ...(timeoutMs !== undefined && { timeoutMs }) });
    const ledger = makeLedger();
    const load = startAdding([service], ledger, next(experiment));
    await disturb(load);
    const { acknowledged, unavailable } = await load.stop();
    const verdict = await judge(url, ledger);
    expect(printed({ experiment, size: `${acknowledged} acknowledged`, verdict, began })).toEqual(INTACT);
    return { unavailable, reconnections: service.metric("reconnections_total") };
  }

  test.concurrent("connections that are terminated again and again fail no request", async () => {
    const { url, run } = await cluster.newDatabase();
    const rounds = 10;
    const { unavailable, reconnections } = await underLoad("pg_terminate_backend", { url }, async (load) => {
      for (let round = 0; round < rounds; round++) {
        await load.more(50);
        await run(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'plant-store' AND datname = current_database()",
        );
      }
      await load.more(50);
    });
    expect(unavailable).toBe(0);
    expect(reconnections).toBeGreaterThan(rounds / 2);
  });

  test.concurrent("replies that are lost under load lose, invent and change no plant", async () => {
    const { url } = await cluster.newDatabase();
    using proxy = startProxy(cluster.port);
    const { unavailable } = await underLoad("lost replies", { url: through(proxy, url) }, async (load) => {
      for (let round = 0; round < 20; round++) {
        const before = proxy.lost();
        proxy.set("lose one reply");
        while (proxy.lost() === before) await Bun.sleep(1);
        await load.more(50);
      }
    });
    expect(unavailable).toBe(0);
  });

  test.concurrent("black holes under load lose, invent and change no plant", async () => {
    const { url } = await cluster.newDatabase();
    using proxy = startProxy(cluster.port);
    await underLoad("black holes", { url: through(proxy, url), timeoutMs: 300 }, async (load) => {
      for (let round = 0; round < 5; round++) {
        await load.more(100);
        proxy.set("black hole");
        await load.moreRefused(32);
        proxy.set("forward");
      }
      await load.more(100);
    });
  });

  test.concurrent("deadlocks under load fail no request, and lose, invent and change no plant", async () => {
    const { name, url, connect, run } = await cluster.newDatabase();
    const began = performance.now();
    const deadlocks = 5;
    const ledger = makeLedger();
    const { acknowledged, unavailable } = await addInDeadlocks();
    expect(unavailable).toBe(0);
    // A process of the server counts what happened to it when it ends.
    const counted = `SELECT deadlocks::int FROM pg_stat_database WHERE datname = '${name}'`;
    while (Number((await run(counted))[0]?.["deadlocks"]) < deadlocks) await Bun.sleep(5);
    const verdict = await judge(url, ledger);
    expect(printed({ experiment: "deadlocks", size: `${acknowledged} acknowledged`, verdict, began })).toEqual(INTACT);

    async function addInDeadlocks() {
      await using service = await openService(url);
      await using rival = connect();
      await rival.unsafe("SET deadlock_timeout = '1min'");
      const load = startAdding([service], ledger, next("deadlocks"));
      const plant = next("the rival's");
      while (service.metric("retries_total") < deadlocks) {
        const { id: some, name: common } = plant();
        const [low, high] = [some + 10_000n, some + 10_001n].map((id) => ({ id, name: common })) as [
          NewPlant,
          NewPlant,
        ];
        [low, high].forEach(ledger.attempt);
        const adds = [low, high].map((one) => service.add(one));
        await rival.unsafe("BEGIN");
        for (const { id, name } of [high, low]) {
          await rival.unsafe("INSERT INTO plants VALUES ($1, $2) ON CONFLICT DO NOTHING", [String(id), name]);
        }
        await rival.unsafe("COMMIT");
        await Promise.all(adds);
      }
      return await load.stop();
    }
  });

  test("a thousand long names that are nothing but quotes are stored in statements of a bounded size", async () => {
    const { url, run } = await cluster.newDatabase();
    await using service = await openService(url);
    const name = '"\\'.repeat(15_000);
    const adds = Array.from({ length: 1_000 }, (_, index) => service.add({ id: BigInt(index), name }));
    expect(new Set(await Promise.all(adds))).toEqual(new Set(["added"]));
    // A statement has a megabyte of text.
    expect(service.metric("statements_total")).toBeGreaterThanOrEqual(29);
    expect(await run("SELECT count(*)::int AS count, min(name) = max(name) AS same FROM plants")).toEqual([
      { count: 1_000, same: true },
    ]);
  });
});
