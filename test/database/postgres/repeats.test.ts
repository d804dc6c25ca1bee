import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { type PostgresCluster, skipsCluster, startCluster } from "../../support/postgres.ts";
import { openDatabase } from "../../support/postgres_database.ts";
import { withCluster } from "../../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const NOW = new Date("2026-01-01T00:00:00.001Z");

/** A token whose digest is its name's first byte. */
function tokenNamed(name: string, expiresAt: Date | null = null) {
  return { name, digest: new Uint8Array(32).fill(name.charCodeAt(0)), createdAt: NOW, expiresAt, scopes: [] };
}

/** A statement that waits for no lock of PostgreSQL's that ends by lock_timeout. */
const SLOW_FUNCTION = `CREATE OR REPLACE FUNCTION be_stuck(name text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
  IF name = 'stuck' THEN
    SET LOCAL lock_timeout = 0;
    PERFORM pg_advisory_xact_lock(1);
  END IF;
  RETURN true;
END $$`;
/** Fails with the SQLSTATE that a plant has for a name: once, for a sequence is not rolled back, or always. */
const FAILING_FUNCTION = `CREATE OR REPLACE FUNCTION fail(name text, tag text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
  IF tag = 'always' OR nextval('attempts') % 2 = 1 THEN RAISE EXCEPTION 'no' USING ERRCODE = name; END IF;
  RETURN true;
END $$`;
const SLOW_CONSTRAINT = "ALTER TABLE plants ADD CHECK (be_stuck(name))";

/** The connections to this database alone: other tests run beside. */
const CONNECTIONS = "FROM pg_stat_activity WHERE datname = current_database()";
const WAITS_FOR_ROW = `EXISTS (SELECT ${CONNECTIONS} AND wait_event = 'transactionid')`;

describe.skipIf(skipsCluster())("openPostgres()", () => {
  let cluster: PostgresCluster;
  withCluster((started) => (cluster = started));

  /** Waits until the only row of a statement about what is stored says so. */
  async function until(run: PostgresCluster["run"], condition: string): Promise<void> {
    while ((await run(`SELECT 1 AS one WHERE ${condition}`)).length === 0) await Bun.sleep(5);
  }

  test.concurrent("a statement that is stuck on the server keeps no other plant waiting", async () => {
    await using database = await openDatabase(cluster);
    const { plants } = database;
    const pids = `SELECT pid ${CONNECTIONS} AND application_name = 'plant-store'`;
    await database.run(SLOW_FUNCTION, SLOW_CONSTRAINT);
    await using rival = database.connect();
    await rival.unsafe("SELECT pg_advisory_lock(1)");
    try {
      const refusal = {
        code: "storage_unavailable",
        message: expect.stringMatching(/^storage did not finish in time;/),
      };
      // The lane is connected by then: the time of the next plant is for its statement.
      expect(await database.add([{ id: 4n, name: "Fern" }])).toEqual(["added"]);
      await expect(plants.add([{ id: 5n, name: "stuck" }], { timeoutMs: 500 })).rejects.toMatchObject(refusal);
      for (let id = 10n; id < 20n; id++) {
        const adds = [0n, 100n, 200n].map((offset) =>
          plants.add([{ id: id + offset, name: "Fern" }], { timeoutMs: TEST_TIMEOUT_MS / 2 }),
        );
        expect(await Promise.all(adds)).toEqual([["added"], ["added"], ["added"]]);
      }
      // All but the one that is stuck are busy: what comes next waits for one of them, and not behind it. One may still
      // connect that nobody waits for any more.
      while (database.metric("connections_busy") !== 1) await Bun.sleep(5);
      expect(await database.run(`${pids} AND wait_event = 'advisory'`)).toHaveLength(1);
      for (let batch = 0n; batch < 5n; batch++) {
        const ids = [0n, 1n, 2n, 3n, 4n, 5n].map((offset) => 1_000n + 10n * batch + offset);
        const adds = ids.map((id) => plants.add([{ id, name: "Fern" }], { timeoutMs: TEST_TIMEOUT_MS / 2 }));
        expect(new Set((await Promise.all(adds)).flat())).toEqual(new Set(["added"]));
      }
    } finally {
      await rival.unsafe("SELECT pg_advisory_unlock(1)");
    }
    while (database.metric("connections_busy") !== 0) await Bun.sleep(5);
    expect(await database.add([{ id: 5n, name: "stuck" }])).toEqual(["present"]);
  });

  // A setting is for all databases of a cluster.
  test.concurrent("leaves twice as many connections waiting as it uses at most, and uses them again", async () => {
    await using own = await startCluster();
    await using database = await openDatabase(own, { maxInFlight: 1 });
    const add = (id: bigint, timeoutMs: number) => database.plants.add([{ id, name: "Fern" }], { timeoutMs });
    const waiting =
      "SELECT pid FROM pg_stat_activity WHERE application_name = 'plant-store' AND wait_event = 'SyncRep'";
    expect(await add(1n, TEST_TIMEOUT_MS)).toEqual(["added"]);
    await own.set("synchronous_standby_names", "nobody");
    // Each but the last gets as far as to its commit.
    for (const [id, timeoutMs] of [
      [2n, 1_000],
      [3n, 1_000],
      [4n, 300],
    ] as const) {
      await expect(add(id, timeoutMs)).rejects.toMatchObject({
        code: "storage_unavailable",
        message: expect.stringMatching(/^storage did not finish in time;/),
      });
    }
    const left = await own.run(waiting);
    expect(left).toHaveLength(2);
    await own.set("synchronous_standby_names", "");
    expect(await add(3n, TEST_TIMEOUT_MS)).toEqual(["present"]);
    expect(database.metric("reconnections_total")).toBe(0);
  });

  // From here on not beside others: a connection that takes too long is a retry more.

  test("sends again what an error of PostgreSQL did not store, and says what storage cannot do", async () => {
    await using database = await openDatabase(cluster);
    const add = (id: bigint, name: string, tag = "once") => database.add([{ id, name, tag }]);
    await database.run("CREATE SEQUENCE attempts", FAILING_FUNCTION, "ALTER TABLE plants ADD CHECK (fail(name, tag))");
    const again = {
      0: ["40001", "40P01", "57014"],
      1: ["08006", "25006", "25P04", "57P01", "57P03", "26000", "53300"],
    };
    const counts = () => ["retries_total", "reconnections_total"].map((name) => database.metric(name));
    let id = 0n;
    for (const [reconnections, codes] of Object.entries(again)) {
      for (const code of codes) {
        const before = counts();
        expect([code, await add(++id, code)]).toEqual([code, ["added"]]);
        const more = counts().map((count, index) => count - (before[index] ?? 0));
        expect([code, more]).toEqual([code, [1, Number(reconnections)]]);
      }
    }
    for (const [code, reason] of [
      ["53100", "storage is full"],
      ["53200", "storage is gone"],
      ["53400", "storage is gone"],
      ["58030", "storage has failed to read or write"],
      ["XX001", "storage has failed"],
    ] as const) {
      await expect(add(100n, code, "always")).rejects.toMatchObject({
        code: "storage_unavailable",
        message: `${reason}; the plant may or may not be stored, send it again later`,
      });
    }
    for (const code of ["22012", "23505", "42883", "P0001"]) {
      await expect(add(100n, code, "always")).rejects.toMatchObject({ name: "PostgresFailure", code });
    }
  });

  // Nor these: what waits for a lock ends by itself after 250 ms.

  test("adds a plant again whose session the role's transaction_timeout has ended", async () => {
    await cluster.run("CREATE ROLE hasty SUPERUSER LOGIN", "ALTER ROLE hasty SET transaction_timeout = '100ms'");
    await using database = await openDatabase(cluster, { role: "hasty" });
    await using rival = database.connect();
    await rival.unsafe("BEGIN; INSERT INTO plants VALUES (1, 'Fern')").simple();
    const add = () => database.add([{ id: 1n, name: "Fern" }]);
    // A server process that did not run on a busy machine for 250 ms ends the wait for the lock, and not the session.
    const addUnlocked = async () => {
      let outcomes = await add();
      while (outcomes[0] === "unavailable") outcomes = await add();
      return outcomes;
    };
    const added = addUnlocked();
    added.catch(() => {});
    while (database.metric("reconnections_total") === 0) await Bun.sleep(5);
    await rival.unsafe("COMMIT");
    expect(await added).toEqual(["present"]);
  });

  test("begins no batch that waited for a lane past its deadline", async () => {
    await using database = await openDatabase(cluster, { maxInFlight: 1 });
    const { plants } = database;
    await database.add([{ id: 1n, name: "Fern" }]);
    await using rival = database.connect();
    await rival.unsafe("BEGIN; INSERT INTO plants VALUES (2, 'Moss')").simple();
    const first = database.add([{ id: 2n, name: "Moss" }]);
    const second = plants.add([{ id: 3n, name: "Ivy" }], { timeoutMs: 10 }).catch((error) => error);
    const deadline = performance.now() + 10;
    while (performance.now() < deadline) await Bun.sleep(1);
    await rival.unsafe("COMMIT");
    expect(await first).toEqual(["present"]);
    expect(await second).toMatchObject({
      code: "storage_unavailable",
      message: "storage did not finish in time; the plant may or may not be stored, send it again later",
    });
    expect(await database.add([{ id: 4n, name: "Sage" }])).toEqual(["added"]);
    expect(await database.run("SELECT name FROM plants WHERE id = 3")).toEqual([]);
    expect(database.metric("reconnections_total")).toBe(0);
  });

  test("sends nothing again once it is disposed of", async () => {
    const database = await openDatabase(cluster);
    await using rival = database.connect();
    await rival.unsafe("BEGIN; INSERT INTO plants VALUES (1, 'Fern')").simple();
    const added = database.add([{ id: 1n, name: "Moss" }]).catch((error) => error);
    await until(database.run, WAITS_FOR_ROW);
    await database[Symbol.asyncDispose]();
    await rival.unsafe("ROLLBACK");
    expect(await added).toMatchObject({
      code: "storage_unavailable",
      message: "storage is gone; the plant may or may not be stored, send it again later",
    });
  });

  test.concurrent("a change of tokens after a failover has another revision than the one that was lost", async () => {
    await using database = await openDatabase(cluster);
    const { tokens } = database;
    await tokens.add(tokenNamed("a"));
    const [before] = await database.run("SELECT revision FROM token_revision");
    await tokens.add(tokenNamed("b"));
    const lost = await tokens.revision();
    // What a standby has that is promoted without the last change.
    const revert = `UPDATE token_revision SET revision = ${before?.["revision"]}`;
    await database.run("DELETE FROM tokens WHERE name = 'b'", revert);
    await tokens.revoke("a", NOW);
    expect(await tokens.revision()).not.toBe(lost);
  });

  test("tells whether tokens were changed, also where the reply to the change is lost", async () => {
    using proxy = startProxy(cluster.port);
    await using database = await openDatabase(cluster, { proxies: [proxy] });
    const { tokens } = database;
    for (const name of ["a", "b"]) await tokens.add(tokenNamed(name));
    await tokens.add(tokenNamed("c", NOW));
    for (const [change, isDone, result] of [
      [() => tokens.revoke("a", NOW), "EXISTS (SELECT FROM tokens WHERE name = 'a' AND revoked_at IS NOT NULL)", true],
      [() => tokens.delete("b"), "NOT EXISTS (SELECT FROM tokens WHERE name = 'b')", true],
      [() => tokens.prune(NOW), "NOT EXISTS (SELECT FROM tokens)", 2],
    ] as const) {
      expect(await losingReplyOf(change, isDone)).toBe(result);
    }
    for (const change of [() => tokens.revoke("a", NOW), () => tokens.delete("b")]) {
      const before = proxy.lost();
      proxy.set("lose the reply");
      const changed = change();
      while (proxy.lost() === before) await Bun.sleep(1);
      proxy.set("forward");
      expect(await changed).toBe(false);
    }

    /** Holds the change behind a row's lock, past what it reads before, and loses only the reply to its commit. */
    async function losingReplyOf(change: () => Promise<boolean | number>, isDone: string): Promise<boolean | number> {
      await using client = database.connect();
      await client.unsafe("BEGIN; SELECT FROM token_revision FOR UPDATE").simple();
      const changed = change();
      await until(database.run, WAITS_FOR_ROW);
      const before = proxy.lost();
      proxy.set("lose the reply");
      await client.unsafe("COMMIT");
      while (proxy.lost() === before) await Bun.sleep(1);
      await until(database.run, isDone);
      proxy.set("forward");
      return await changed;
    }
  });
});
