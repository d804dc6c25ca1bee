import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Database } from "../../../src/database/database.ts";
import { MAX_IN_FLIGHT } from "../../../src/database/postgres/database.ts";
import { type PostgresCluster, skipsCluster } from "../../support/postgres.ts";
import { openDatabase } from "../../support/postgres_database.ts";
import { withCluster } from "../../support/postgres_hooks.ts";
import { ROOT, TEST_TIMEOUT_MS } from "../../support/program.ts";
import { range } from "../../support/scale.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** How long a commit takes: long enough for batches to meet, in milliseconds. */
const COMMIT_MS = 20;
/** How long a plant may take, in milliseconds: enough for 20 on one lane beside other tests. */
const TIMEOUT_MS = 10_000;

describe.skipIf(skipsCluster())("the pool of connections", () => {
  let cluster: PostgresCluster;
  const tls = (name: string) => readFileSync(join(ROOT, "test/support/tls", name), "utf8");
  withCluster((started) => (cluster = started), {
    settings: { ssl: "on" },
    files: { "server.crt": tls("localhost.crt"), "server.key": tls("localhost.key") },
  });

  test.concurrent("where the server takes one connection, that one serves all", async () => {
    await cluster.run("CREATE ROLE single LOGIN CONNECTION LIMIT 1", "GRANT pg_read_all_settings TO single");
    using proxy = startProxy(cluster.port, { delayMs: COMMIT_MS });
    await using database = await openDatabase(cluster, { proxies: [proxy], role: "single" });
    expect(await addAtOnce(database, range(1, 20))).toEqual(range(1, 20).map(() => "added"));
    expect(database.metric("connections")).toBe(1);
  });

  test.concurrent("a new connection that hangs keeps no plant waiting, and later ones are used", async () => {
    using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    using proxy = startProxy(cluster.port, { delayMs: COMMIT_MS });
    await using database = await openDatabase(cluster, { proxies: [proxy] });
    expect(await addAtOnce(database, [1])).toEqual(["added"]);
    proxy.redirect(silent.port);
    expect(await addAtOnce(database, range(2, 20))).toEqual(range(2, 20).map(() => "added"));
    expect(database.metric("connections_busy")).toBeGreaterThan(0);
    expect(database.metric("connections")).toBe(1);
    proxy.redirect(cluster.port);
    for (let id = 100; database.metric("connections") === 1; id += 10) await addAtOnce(database, range(id, id + 9));
    expect(database.metric("reconnections_total")).toBe(0);
  });

  test.concurrent("a server is refused at its start if PostgreSQL takes fewer than three connections", async () => {
    await cluster.run("CREATE ROLE pair LOGIN CONNECTION LIMIT 2", "CREATE ROLE three LOGIN CONNECTION LIMIT 3");
    using proxy = startProxy(cluster.port);
    await expect(openDatabase(cluster, { proxies: [proxy], role: "pair", isServing: true })).rejects.toThrow(
      /^Cannot open database "plants_\d+": 127\.0\.0\.1:\d+: it accepts no more connections \(53300\)$/,
    );
    await using database = await openDatabase(cluster, {
      proxies: [proxy],
      role: "three",
      isServing: true,
    });
    expect(await addAtOnce(database, range(1, 20))).toEqual(range(1, 20).map(() => "added"));
    const createdAt = new Date("2026-01-01T00:00:00.001Z");
    await database.tokens.add({ name: "garden", digest: new Uint8Array(32), createdAt, expiresAt: null, scopes: [] });
    expect(await database.tokens.list()).toMatchObject([{ name: "garden" }]);
    expect(database.metric("connections")).toBe(3);
  });

  test.each([
    ["the same host", 1],
    ["another host", 8],
  ])("idle connections that died silently delay plants by a second, until %s takes them", async (host, batches) => {
    using dying = startProxy(cluster.port, { delayMs: COMMIT_MS });
    using other = startProxy(cluster.port);
    const isSame = host === "the same host";
    await using database = await openDatabase(cluster, { proxies: isSame ? [dying] : [dying, other] });
    await addAtOnce(database, range(1, 20));
    expect(database.metric("connections")).toBe(MAX_IN_FLIGHT);
    // Long enough for none of them to be fresh.
    using clock = monotonicClock();
    clock.advance(6_000);
    if (isSame) dying.forget();
    else dying.set("black hole");
    const began = performance.now();
    expect(await addAtOnce(database, range(101, 100 + batches))).toEqual(range(1, batches).map(() => "added"));
    // One round trip of a second, and what a busy machine adds. One after another they take 2.8 s or more.
    expect(performance.now() - began).toBeLessThan(2_600);
  });

  test("a connection is used for ten minutes, and then replaced", async () => {
    await using database = await openDatabase(cluster, { maxInFlight: 1 });
    /** Which server process runs the next batch: it writes the row. */
    const next = async (id: number) => {
      await addAtOnce(database, [id]);
      const pids = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^insert'";
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

  test.concurrent("no work waits for a connection, or makes one, once the database is closed", async () => {
    using proxy = startProxy(cluster.port);
    const database = await openDatabase(cluster, { proxies: [proxy] });
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
    expect(await addAtOnce(database, [2]).catch((error: unknown) => error)).toMatchObject(disposed);
    expect(connected).toHaveLength(before);
  });

  test.concurrent("connections whose replies are lost, again and again, are replaced", async () => {
    using proxy = startProxy(cluster.port);
    await using database = await openDatabase(cluster, { proxies: [proxy], maxInFlight: 1 });
    for (let id = 10; id < 60; id += 10) {
      expect(await addAtOnce(database, [id])).toEqual(["added"]);
      proxy.forget();
      const lost = database.add([{ id: BigInt(id + 1), name: "Fern" }], 100);
      await expect(lost).rejects.toMatchObject({ code: "storage_unavailable" });
    }
    expect(database.metric("connections")).toBeLessThanOrEqual(2);
  });

  test.concurrent("a statement that is given up at its deadline is not cancelled", async () => {
    const first: Buffer[] = [];
    const socket = { data: (_: unknown, bytes: Buffer) => void first.push(Buffer.from(bytes)) };
    using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
    using proxy = startProxy(cluster.port);
    await using database = await openDatabase(cluster, { proxies: [proxy] });
    await addAtOnce(database, [1]);
    await database.run(
      "CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(5); RETURN NEW; END'",
      "CREATE TRIGGER be_slow BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION be_slow()",
    );
    proxy.redirect(silent.port);
    const added = database.add([{ id: 2n, name: "Fern" }], 500);
    await expect(added).rejects.toMatchObject({ code: "storage_unavailable" });
    const next = database.add([{ id: 3n, name: "Fern" }], 500);
    await expect(next).rejects.toMatchObject({ code: "storage_unavailable" });
    // What comes first on a new connection.
    while (first.length === 0) await Bun.sleep(5);
    // https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-CANCELREQUEST
    expect(first.map((bytes) => bytes.readInt32BE(4))).not.toContain(80_877_102);
  });

  test.concurrent.each(["disable", "require"])(
    "a plant is sent again where the reply to it was damaged on the way: sslmode=%s",
    async (mode) => {
      using proxy = startProxy(cluster.port);
      await using database = await openDatabase(cluster, { proxies: [proxy], parameters: `?sslmode=${mode}` });
      await addAtOnce(database, [1]);
      proxy.set("damage one reply");
      expect(await addAtOnce(database, [2])).toEqual(["present"]);
      expect(database.metric("reconnections_total")).toBe(1);
    },
  );
});

/** Each as a batch of its own. */
async function addAtOnce({ plants }: Database, ids: readonly number[]): Promise<readonly string[]> {
  const batches = ids.map((id) => plants.add([{ id: BigInt(id), name: "Fern" }], { timeoutMs: TIMEOUT_MS }));
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
