import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { Database } from "../../../src/database/database.ts";
import { MAX_IN_FLIGHT } from "../../../src/database/postgres/postgres_database.ts";
import { fern, OPTIONAL_TEXT, TEXT } from "../../support/plants.ts";
import {
  CONNECT_TIMEOUT,
  type PostgresCluster,
  skipsCluster,
  startCluster,
} from "../../support/postgres.ts";
import { openDatabase, withCluster } from "../../support/postgres_database.ts";
import { ROOT, TEST_TIMEOUT_MS } from "../../support/program.ts";
import { range } from "../../support/scale.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

/** How long a commit takes: long enough for batches to meet, in milliseconds. */
const COMMIT_MS = 20;

const NOW = new Date("2026-01-01T00:00:00.001Z");
const LATER = new Date("2026-01-01T00:00:00.002Z");

/** A token whose digest is its name's first byte. */
function tokenNamed(name: string, expiresAt: Date | null = null) {
  return {
    name,
    digest: new Uint8Array(32).fill(name.charCodeAt(0)),
    createdAt: NOW,
    expiresAt,
    scopes: [],
  };
}

/** A plant with the name `stuck` waits as long as somebody holds the advisory lock 1. */
const BE_STUCK = [
  `CREATE FUNCTION be_stuck(name text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    IF name = 'stuck' THEN
      SET LOCAL lock_timeout = 0;
      PERFORM pg_advisory_xact_lock(1);
    END IF;
    RETURN true;
  END $$`,
  `ALTER TABLE plants ADD CHECK (be_stuck("${TEXT}"))`,
];
/** Likewise, a change of a token that exists. */
const STICK_TOKENS = [
  `CREATE FUNCTION stick() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    SET LOCAL lock_timeout = 0;
    PERFORM pg_advisory_xact_lock(1);
    RETURN coalesce(NEW, OLD);
  END $$`,
  "CREATE TRIGGER stick BEFORE UPDATE OR DELETE ON tokens FOR EACH ROW EXECUTE FUNCTION stick()",
];
const LOCK = "SELECT pg_advisory_lock(1)";
const UNLOCK = "SELECT pg_advisory_unlock(1)";
/**
 * Fails with the SQLSTATE that a plant has for a name: once, for a sequence is not rolled back, or
 * always.
 */
const FAILING_FUNCTION = `CREATE OR REPLACE FUNCTION fail(name text, tag text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
  IF tag = 'always' OR nextval('attempts') % 2 = 1 THEN RAISE EXCEPTION 'no' USING ERRCODE = name; END IF;
  RETURN true;
END $$`;

/** The connections to this database alone: other tests run beside. */
const CONNECTIONS = "FROM pg_stat_activity WHERE datname = current_database()";
/** The error for a plant whose time is up. */
const NOT_IN_TIME = {
  code: "storage_unavailable",
  message:
    "storage did not finish in time; the plant may or may not be stored, send it again later",
};
/** Whether so many statements wait in `be_stuck()`, or for a standby. */
const areStuck = (count: number) =>
  `(SELECT count(*) ${CONNECTIONS} AND wait_event = 'advisory') = ${count}`;
const waitForStandby = (count: number) =>
  `(SELECT count(*) ${CONNECTIONS} AND wait_event = 'SyncRep') = ${count}`;

describe.skipIf(skipsCluster())("the pool of connections", () => {
  const tls = (name: string) => readFileSync(join(ROOT, "test/support/tls", name), "utf8");
  const cluster = withCluster({
    settings: { ssl: "on" },
    files: {
      "server.crt": tls("localhost.crt"),
      "server.key": tls("localhost.key"),
      "pg_hba.conf": "hostssl all /^secret_ all scram-sha-256\nhost all all all trust\n",
    },
  });

  /** Waits until the only row of a statement about what is stored says so. */
  async function until(run: PostgresCluster["run"], condition: string): Promise<void> {
    while ((await run(`SELECT 1 AS one WHERE ${condition}`)).length === 0) await Bun.sleep(5);
  }

  test.concurrent("a statement that is stuck on the server delays no other plant", async () => {
    await using database = await openDatabase(cluster());
    await database.run(...BE_STUCK);
    await using rival = database.connect();
    await rival.unsafe(LOCK);

    // Connected now: the whole time of the next plant is for its statement.
    expect(await addAtOnce(database, [4])).toEqual(["added"]);
    await expect(database.add([fern({ id: 5n, [TEXT]: "stuck" })], 500)).rejects.toMatchObject(
      NOT_IN_TIME,
    );

    await until(database.run, areStuck(1));
    // What comes next waits for one of the others, and not behind it.
    for (let id = 10; id < 100; id += 10) {
      expect(new Set(await addAtOnce(database, range(id, id + 5)))).toEqual(new Set(["added"]));
    }

    // One may still connect that nobody waits for any more.
    while (database.metric("connections_busy") !== 1) await Bun.sleep(5);
    await rival.unsafe(UNLOCK);
    while (database.metric("connections_busy") !== 0) await Bun.sleep(5);

    expect(await database.add([fern({ id: 5n, [TEXT]: "stuck" })])).toEqual(["present"]);
  });

  // A setting is for all databases of a cluster.
  test.concurrent(
    "has at most twice as many connections as it uses at once, and uses abandoned ones again",
    async () => {
      await using own = await startCluster();
      await using database = await openDatabase(own, { maxInFlight: 1, isServing: true });
      expect(await addAtOnce(database, [1])).toEqual(["added"]);

      await own.set("synchronous_standby_names", "nobody");
      // The second one takes another connection once the first is overdue.
      const adding = addAtOnce(database, [2, 3]);
      await until(database.run, waitForStandby(2));

      await expect(addAtOnce(database, [4], 300)).rejects.toMatchObject(NOT_IN_TIME);
      // Two of them are for tokens.
      expect(database.metric("connections")).toBe(4);

      await own.set("synchronous_standby_names", "");
      expect(await adding).toEqual(["added", "added"]);
      expect(await addAtOnce(database, [3, 5])).toEqual(["present", "added"]);
      expect(database.metric("reconnections_total")).toBe(0);
    },
  );

  test.concurrent(
    "a change of tokens after a failover gets another revision than the change that was lost",
    async () => {
      await using database = await openDatabase(cluster());
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
    },
  );

  test.concurrent("a token that SQL lets end at infinity does not expire", async () => {
    await using database = await openDatabase(cluster());
    await database.tokens.add(tokenNamed("a"));
    await database.run("UPDATE tokens SET expires_at = 'infinity'");
    expect(await database.tokens.list()).toMatchObject([{ name: "a", expiresAt: null }]);
  });

  test.concurrent(
    "if the server accepts only one connection, that one serves everything",
    async () => {
      await cluster().run(
        "CREATE ROLE single LOGIN CONNECTION LIMIT 1",
        "GRANT pg_read_all_settings TO single",
      );

      using proxy = startProxy(cluster().port, { delayMs: COMMIT_MS });
      await using database = await openDatabase(cluster(), { proxies: [proxy], role: "single" });
      expect(await addAtOnce(database, range(1, 20))).toEqual(range(1, 20).map(() => "added"));
      expect(database.metric("connections")).toBe(1);
    },
  );

  test.concurrent(
    "a new connection that hangs delays no plant, and later ones are used",
    async () => {
      const hanging: Bun.Socket[] = [];
      const socket = { open: (client: Bun.Socket) => void hanging.push(client), data() {} };
      using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
      using proxy = startProxy(cluster().port, { delayMs: COMMIT_MS });
      await using database = await openDatabase(cluster(), { proxies: [proxy], maxInFlight: 20 });
      expect(await addAtOnce(database, [1])).toEqual(["added"]);
      // A busy machine opens more of them for one plant.
      while (database.metric("connections_busy") > 0) await Bun.sleep(5);
      const opened = database.metric("connections");

      proxy.redirect(silent.port);
      expect(await addAtOnce(database, range(2, 20))).toEqual(range(2, 20).map(() => "added"));
      expect(database.metric("connections_busy")).toBeGreaterThan(0);
      expect(database.metric("connections")).toBe(opened);

      proxy.redirect(cluster().port);
      for (const client of hanging) client.end();
      for (let id = 100; database.metric("connections") === opened; id += 10)
        await addAtOnce(database, range(id, id + 9));

      expect(database.metric("reconnections_total")).toBe(0);
    },
  );

  test.concurrent.each([
    ["as the only host", []],
    ["as one of several", [{ port: 1 }]],
  ])(
    "a server that needs more than a second to connect is used again after a silence: %s",
    async (_, others) => {
      const role = `secret_${others.length}`;
      await cluster().run(`CREATE ROLE ${role} LOGIN PASSWORD 'sesame'`);

      // TCP, TLS, SCRAM and the verification of the session take six replies.
      using slow = startProxy(cluster().port, { delayMs: 200 });
      await using database = await openDatabase(cluster(), {
        proxies: [slow, ...others],
        role,
        password: "sesame",
        parameters: `?sslmode=require&${CONNECT_TIMEOUT}`,
      });
      expect(await addAtOnce(database, [1])).toEqual(["added"]);

      slow.forget();
      // While nothing else waits: a server that is not ready is sent no plants.
      while (
        await database.plants.probe().then(
          () => false,
          () => true,
        )
      );

      expect(await addAtOnce(database, [2])).toEqual(["added"]);
    },
  );

  test.concurrent(
    "a server is refused at its start if PostgreSQL takes fewer than three connections",
    async () => {
      await cluster().run(
        "CREATE ROLE pair LOGIN CONNECTION LIMIT 2",
        "CREATE ROLE three LOGIN CONNECTION LIMIT 3",
      );

      using proxy = startProxy(cluster().port);
      const openAs = (role: string, parameters?: string) =>
        openDatabase(cluster(), {
          proxies: [proxy],
          role,
          isServing: true,
          ...(parameters && { parameters }),
        });

      const refusal =
        /^Cannot open database "plants_\d+": 127\.0\.0\.1:\d+: it accepts no more connections \(53300\)$/;
      await expect(openAs("pair", "?connect_timeout=4")).rejects.toThrow(refusal);

      await using database = await openAs("three");
      expect(await addAtOnce(database, range(1, 20))).toEqual(range(1, 20).map(() => "added"));

      await database.tokens.add(tokenNamed("garden"));
      expect(await database.tokens.list()).toMatchObject([{ name: "garden" }]);
      expect(database.metric("connections")).toBe(3);
    },
  );

  test.each([
    ["the same host", 1],
    ["another host", 8],
  ])(
    "idle connections that died silently are all checked at once, and %s takes the plants",
    async (host, batches) => {
      using dying = startProxy(cluster().port, { delayMs: COMMIT_MS });
      using other = startProxy(cluster().port);
      const isSame = host === "the same host";
      await using database = await openDatabase(cluster(), {
        proxies: isSame ? [dying] : [dying, other],
      });

      // On a busy machine, the last ones come when the first have added all.
      for (let id = 1_000; database.metric("connections") < MAX_IN_FLIGHT; id += 20)
        await addAtOnce(database, range(id, id + 19));

      // Long enough for none of them to be fresh.
      using clock = monotonicClock();
      clock.advance(6_000);
      if (isSame) dying.forget();
      else dying.set("black hole");

      const adding = addAtOnce(database, range(101, 100 + batches));
      // A check ends after a second: one after another, they would never all be in flight.
      while (dying.unanswered() < MAX_IN_FLIGHT) await Bun.sleep(1);
      expect(await adding).toEqual(range(1, batches).map(() => "added"));
    },
  );

  test("a connection is used for ten minutes, and then replaced", async () => {
    await using database = await openDatabase(cluster(), { maxInFlight: 1 });
    /** Which server process runs the next batch: it writes the row. */
    const next = async (id: number) => {
      await addAtOnce(database, [id]);
      const pids =
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^insert'";
      return (await database.run(pids))[0]?.["pid"];
    };

    const first = await next(1);
    using clock = monotonicClock();
    clock.advance(590_000);
    expect(await next(2)).toBe(first);

    clock.advance(20_000);
    await addAtOnce(database, [3]);
    expect(await next(4)).not.toBe(first);
    expect(database.metric("reconnections_total")).toBe(0);
  });

  test.concurrent(
    "once the database is closed, no work waits for a connection or opens one",
    async () => {
      using proxy = startProxy(cluster().port);
      const database = await openDatabase(cluster(), { proxies: [proxy] });
      const connected: unknown[] = [];
      const socket = { open: (client: unknown) => void connected.push(client), data() {} };
      using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });

      proxy.redirect(silent.port);
      const disposed = { code: "storage_unavailable", cause: { code: "DISPOSED" } };
      const waiting = addAtOnce(database, [1]).catch((error: unknown) => error);
      while (connected.length === 0) await Bun.sleep(1);
      await database[Symbol.asyncDispose]();

      expect(await waiting).toMatchObject(disposed);

      const before = connected.length;
      expect(await addAtOnce(database, [2]).catch((error: unknown) => error)).toMatchObject(
        disposed,
      );
      expect(connected).toHaveLength(before);
    },
  );

  test.concurrent("connections whose replies are lost, again and again, are replaced", async () => {
    using proxy = startProxy(cluster().port);
    await using database = await openDatabase(cluster(), { proxies: [proxy], maxInFlight: 1 });

    for (let id = 10; id < 60; id += 10) {
      expect(await addAtOnce(database, [id])).toEqual(["added"]);
      proxy.forget();
      await expect(addAtOnce(database, [id + 1], 100)).rejects.toMatchObject(NOT_IN_TIME);
    }

    // Two for plants, and two of the pool that asks why the server is silent.
    expect(database.metric("connections")).toBeLessThanOrEqual(4);
  });

  test.concurrent("a statement that is abandoned at its deadline is not cancelled", async () => {
    const first: Buffer[] = [];
    const socket = { data: (_: unknown, bytes: Buffer) => void first.push(Buffer.from(bytes)) };
    using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
    using proxy = startProxy(cluster().port);
    await using database = await openDatabase(cluster(), { proxies: [proxy] });

    await addAtOnce(database, [1]);
    await database.run(
      "CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(5); RETURN NEW; END'",
      "CREATE TRIGGER be_slow BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION be_slow()",
    );
    proxy.redirect(silent.port);

    for (const id of [2, 3])
      await expect(addAtOnce(database, [id], 500)).rejects.toMatchObject(NOT_IN_TIME);

    // What comes first on a new connection.
    while (first.length === 0) await Bun.sleep(5);

    // https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-CANCELREQUEST
    expect(first.map((bytes) => bytes.readInt32BE(4))).not.toContain(80_877_102);
  });

  test.concurrent.each(["disable", "require"])(
    "a plant is sent again if its reply was damaged on the way: sslmode=%s",
    async (mode) => {
      using proxy = startProxy(cluster().port);
      await using database = await openDatabase(cluster(), {
        proxies: [proxy],
        parameters: `?sslmode=${mode}&${CONNECT_TIMEOUT}`,
      });
      await addAtOnce(database, [1]);
      // A busy machine opens another one for it, whose reply would be the damaged one.
      while (database.metric("connections_busy") > 0) await Bun.sleep(5);
      proxy.set("damage one reply");

      expect(await addAtOnce(database, [2])).toEqual(["present"]);
    },
  );

  // From here on not beside others: a connection that takes too long is a retry more.

  test("retries after an error that stored nothing, and says what storage cannot do", async () => {
    await using database = await openDatabase(cluster());
    const add = (id: bigint, name: string, tag = "once") =>
      database.add([fern({ id, [TEXT]: name, [OPTIONAL_TEXT]: tag })]);
    await database.run(
      "CREATE SEQUENCE attempts",
      FAILING_FUNCTION,
      `ALTER TABLE plants ADD CHECK (fail("${TEXT}", "${OPTIONAL_TEXT}"))`,
    );

    const again = {
      0: ["40001", "40P01", "57014"],
      1: ["08006", "25006", "25P04", "57P01", "57P03", "26000", "53300"],
    };
    const counts = () =>
      ["retries_total", "reconnections_total"].map((name) => database.metric(name));
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
      ["53200", "storage is unavailable"],
      ["53400", "storage is unavailable"],
      ["58030", "storage has failed to read or write"],
      ["XX001", "storage has failed"],
    ] as const) {
      await expect(add(100n, code, "always")).rejects.toMatchObject({
        code: "storage_unavailable",
        message: `${reason}; the plant may or may not be stored, send it again later`,
      });
    }

    for (const code of ["22012", "23505", "P0001"]) {
      await expect(add(100n, code, "always")).rejects.toMatchObject({
        code: "internal",
        cause: { name: "PostgresFailure", code },
      });
    }
  });

  test.concurrent("starts no batch that waited for a connection past its deadline", async () => {
    await using database = await openDatabase(cluster(), { maxInFlight: 1 });
    await database.run(...BE_STUCK);
    await using rival = database.connect();
    await rival.unsafe(LOCK);

    const stuck = database.add([fern({ id: 2n, [TEXT]: "stuck" })]);
    await expect(addAtOnce(database, [3], 10)).rejects.toMatchObject(NOT_IN_TIME);

    await rival.unsafe(UNLOCK);
    expect(await stuck).toEqual(["added"]);
    expect(await addAtOnce(database, [4])).toEqual(["added"]);
    expect(await database.run("SELECT id FROM plants WHERE id = 3")).toEqual([]);
    expect(database.metric("reconnections_total")).toBe(0);
  });

  test.concurrent("retries nothing once it is disposed of", async () => {
    const database = await openDatabase(cluster());
    await database.run(...BE_STUCK);
    await using rival = database.connect();
    await rival.unsafe(LOCK);

    const added = database.add([fern({ [TEXT]: "stuck" })]).catch((error) => error);
    await until(database.run, areStuck(1));
    await database[Symbol.asyncDispose]();
    expect(await added).toMatchObject({
      code: "storage_unavailable",
      message: "storage is unavailable; the plant may or may not be stored, send it again later",
    });
  });

  test.concurrent(
    "tells whether tokens were changed, even if the reply to the change is lost",
    async () => {
      using proxy = startProxy(cluster().port);
      await using database = await openDatabase(cluster(), { proxies: [proxy] });
      const { tokens } = database;

      for (const name of ["a", "b"]) await tokens.add(tokenNamed(name));
      await tokens.add(tokenNamed("c", NOW));
      await database.run(...STICK_TOKENS);

      for (const [change, isDone, result] of [
        [
          () => tokens.revoke("a", NOW),
          "EXISTS (SELECT FROM tokens WHERE name = 'a' AND revoked_at IS NOT NULL)",
          true,
        ],
        [() => tokens.delete("b"), "NOT EXISTS (SELECT FROM tokens WHERE name = 'b')", true],
        [() => tokens.prune(NOW), "NOT EXISTS (SELECT FROM tokens)", 2],
      ] as const) {
        expect(await losingReplyOf(change, isDone)).toBe(result);
      }

      for (const change of [() => tokens.revoke("a", LATER), () => tokens.delete("b")]) {
        const before = proxy.lost();
        proxy.set("lose the reply");
        const changed = change();
        while (proxy.lost() === before) await Bun.sleep(1);
        proxy.set("forward");
        expect(await changed).toBe(false);
      }

      /**
       * Holds the change behind a lock, past what it reads before, and loses only the reply to its
       * commit.
       */
      async function losingReplyOf(
        change: () => Promise<boolean | number>,
        isDone: string,
      ): Promise<boolean | number> {
        await using client = database.connect();
        await client.unsafe(LOCK);
        const changed = change();
        await until(database.run, areStuck(1));

        const before = proxy.lost();
        proxy.set("lose the reply");
        await client.unsafe(UNLOCK);
        while (proxy.lost() === before) await Bun.sleep(1);
        await until(database.run, isDone);
        proxy.set("forward");

        return await changed;
      }
    },
  );
});

/** Each as a batch of its own. */
async function addAtOnce(
  { plants }: Database,
  ids: readonly number[],
  timeoutMs = TEST_TIMEOUT_MS,
) {
  const batches = ids.map((id) => plants.add([fern({ id })], { timeoutMs }));
  return (await Promise.all(batches)).flat();
}

/** The monotonic clock, to be advanced in milliseconds; timers run as they did. */
function monotonicClock() {
  const { now } = performance;
  let aheadMs = 0;
  performance.now = () => now.call(performance) + aheadMs;
  return {
    advance: (byMs: number) => void (aheadMs += byMs),
    [Symbol.dispose]: () => void (performance.now = now),
  };
}
