import { describe, expect, setDefaultTimeout, test } from "bun:test";

import type { NewPlant } from "../../src/plant/plant.ts";
import { INTACT, makeLedger, printed } from "../support/ledger.ts";
import { fern, insertOf, moss, TEXT } from "../support/plants.ts";
import { skipsCluster, startCluster } from "../support/postgres.ts";
import { openDatabase, withCluster } from "../support/postgres_database.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { judge, openService } from "./postgres.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const FERN = fern();
const MOSS = moss({ id: 2n });

describe.skipIf(skipsCluster())("on PostgreSQL", () => {
  const cluster = withCluster({
    timeoutMs: LONG_TEST_TIMEOUT_MS,
    settings: { max_connections: "200" },
  });

  test.concurrent("a silent host is tried once, as long as another one responds", async () => {
    // On a busy machine that one may need the second after which the next host is tried.
    for (let triesLeft = 5; ; triesLeft--) {
      let asked = 0;
      const socket = { open: () => void asked++, data() {} };
      using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
      await using database = await openDatabase(cluster(), { proxies: [silent, cluster()] });
      const addFour = () => Promise.all([1n, 2n, 3n, 4n].map((id) => database.add([fern({ id })])));
      expect(await addFour()).toEqual([["added"], ["added"], ["added"], ["added"]]);

      // The first that connects may serve all, and one that cannot in time connects again for a
      // later plant only.
      while (database.metric("connections") !== 4) await addFour();
      if (asked === 1) return;
      expect(triesLeft).toBeGreaterThan(0);
    }
  });

  test.concurrent(
    "of plants too long for one batch, those that nothing holds up are stored",
    async () => {
      const { url, connect } = await cluster().newDatabase();
      await using service = await openService(url, 3_000);
      await using rival = connect();
      await rival.unsafe(`BEGIN; ${insertOf(fern())}`).simple();

      const name = "x".repeat(600_000);
      const adds = [0n, 1n, 2n, 3n].map((id) =>
        service.add(fern({ id, [TEXT]: name })).catch((error) => error),
      );
      const outcomes = await Promise.all(adds);
      expect(outcomes).toMatchObject(["added", { code: "storage_unavailable" }, "added", "added"]);

      await rival.unsafe("COMMIT");
      const addAgain = async (id: bigint): Promise<unknown> => {
        // An id that was held is refused for a second: its client sends it again.
        for (;;) {
          const outcome = await service.add(fern({ id, [TEXT]: name })).catch(() => Bun.sleep(10));
          if (outcome !== undefined) return outcome;
        }
      };

      expect(await Promise.all([0n, 1n, 2n].map(addAgain))).toEqual([
        "present",
        "conflict",
        "present",
      ]);
    },
  );

  test.concurrent(
    "a probe does not wait for another server's, and takes no connection from plants if commits are slow",
    async () => {
      await using database = await openDatabase(cluster());
      const { plants, metric } = database;
      expect(await database.add([FERN])).toEqual(["added"]);

      await using rival = database.connect();
      await rival.unsafe("BEGIN; INSERT INTO probes VALUES (1, now())").simple();

      // Each writes a row of 64 at random, which may be the rival's.
      await Promise.any([1, 2, 3].map(() => plants.probe()));
      await rival.unsafe("COMMIT");

      // Between the second that a probe has, which a busy machine extends, and the third, when its
      // connection is closed.
      await database.run(
        "CREATE OR REPLACE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); RETURN NEW; END'",
        "CREATE TRIGGER be_slow BEFORE INSERT ON probes FOR EACH ROW EXECUTE FUNCTION be_slow()",
      );

      await expect(plants.probe()).rejects.toMatchObject({
        code: "storage_unavailable",
        message:
          "storage did not finish in time; the plant may or may not be stored, send it again later",
      });

      while (metric("connections_busy") > 0) await Bun.sleep(5);
      expect(await database.add([MOSS])).toEqual(["added"]);
      expect(metric("reconnections_total")).toBe(0);
    },
  );

  test.concurrent("a lock on the table of probes delays no plant", async () => {
    await using database = await openDatabase(cluster());
    const { plants } = database;
    await using rival = database.connect();
    await rival.unsafe("BEGIN; LOCK TABLE probes").simple();

    const probes = await Promise.allSettled([1, 2, 3, 4].map(() => plants.probe()));
    for (const probe of probes)
      expect(probe).toMatchObject({ reason: { code: "storage_unavailable" } });

    const adds = [1n, 2n, 3n, 4n].map((id) => database.add([fern({ id })], 10_000));
    expect(await Promise.all(adds)).toEqual([["added"], ["added"], ["added"], ["added"]]);

    await rival.unsafe("COMMIT");
    await plants.probe();
  });

  test("a thousand long names of quotes only are stored in statements of bounded size", async () => {
    const { url, run } = await cluster().newDatabase();
    await using service = await openService(url);
    const name = '"\\'.repeat(15_000);
    const adds = Array.from({ length: 1_000 }, (_, index) =>
      service.add(fern({ id: index, [TEXT]: name })),
    );

    expect(new Set(await Promise.all(adds))).toEqual(new Set(["added"]));
    // A statement has a megabyte of text.
    expect(service.metric("statements_total")).toBeGreaterThanOrEqual(29);
    expect(
      await run(
        `SELECT count(*)::int AS count, min("${TEXT}") = max("${TEXT}") AS same FROM plants`,
      ),
    ).toEqual([{ count: 1_000, same: true }]);
  });
});

/** A commit that waits for the synchronous standby. */
const WAITING_FOR_STANDBY = "SELECT 1 AS one FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

test.skipIf(skipsCluster())(
  "without its synchronous standby nothing is acknowledged, and promoting the standby loses nothing",
  async () => {
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
    const waiting = addWithin(2_000, moss({ id: 0n }));
    while ((await primary.run(WAITING_FOR_STANDBY)).length === 0) await Bun.sleep(5);

    for (let round = 1n; round < 4n; round++) {
      const ids = [0n, 1n, 2n, 3n].map((place) => 10n * round + place);
      const tried = await Promise.all(ids.map((id) => addWithin(100, moss({ id }))));
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
    while ((await primary.run(`${WAITING_FOR_STANDBY} AND query LIKE '%"tokens"%'`)).length === 0)
      await Bun.sleep(5);
    expect(await tokens.list()).toEqual([]);
    const [activity] = await primary.run(
      "SELECT count(*)::int AS connections FROM pg_stat_activity WHERE application_name = 'plant-store'",
    );

    // Each of six connections in use, and at most one that was abandoned for each.
    expect(activity?.["connections"]).toBeLessThanOrEqual(12);

    // The primary has committed one, and shows it: but no standby has it.
    await primary.kill();
    await primary.restart();
    expect(await primary.run("SELECT id FROM plants WHERE id = 0")).toHaveLength(1);
    expect(await addWithin(1_000, moss({ id: 0n }))).toMatchObject(unavailable);

    await standby.restart();
    expect(await addWithin(LONG_TEST_TIMEOUT_MS, moss({ id: 0n }))).toEqual(["present"]);

    await primary.kill();
    await standby.run("SELECT pg_promote()");
    const size = `${ledger.attempts()} sent`;
    expect(printed("standby gone, then promoted", size, await judge(url, ledger))).toEqual(INTACT);
  },
);
