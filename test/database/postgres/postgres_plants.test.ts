import { describe, expect, test } from "bun:test";

import type { StoreOutcome } from "../../../src/group_commit/plant_store.ts";
import type { NewPlant } from "../../../src/plant/plant.ts";
import { fern, insertOf, ivy, OPTIONAL_TEXT, TEXT } from "../../support/plants.ts";
import { skipsCluster, startCluster } from "../../support/postgres.ts";
import { openDatabase, probe, withCluster } from "../../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";
import { range } from "../../support/scale.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

const insertIvies = (...ids: readonly number[]) => insertOf(...ids.map((id) => ivy({ id })));
const INSERT = insertOf(fern({ id: 98 }), ivy({ id: 99 }));
const DELETE = "DELETE FROM plants WHERE id IN (1, 2)";

/**
 * Of the ids 1 to 50, 1 to 25 are stored: what another transaction does, and the plants that it
 * keeps from being added.
 */
const HELD: readonly (readonly [name: string, statement: string, held: readonly number[]])[] = [
  ["an INSERT of one", insertIvies(37), [37]],
  ["an INSERT of the last two", insertIvies(49, 50), [49, 50]],
  ["an INSERT of six", insertIvies(26, 30, 35, 40, 45, 50), [26, 30, 35, 40, 45, 50]],
  ["an INSERT of all that are new", insertIvies(...range(26, 50)), range(26, 50)],
  ["an ordinary UPDATE", `UPDATE plants SET "${OPTIONAL_TEXT}" = 'indoor' WHERE id < 10`, []],
  [
    "an UPDATE of every row, and an INSERT",
    `UPDATE plants SET "${OPTIONAL_TEXT}" = 'indoor'; ${insertIvies(37)}`,
    [37],
  ],
  ["SELECT FOR UPDATE", "SELECT FROM plants WHERE id IN (3, 4) FOR UPDATE", [3, 4]],
  ["a DELETE", "DELETE FROM plants WHERE id = 20", [20]],
];

describe.skipIf(skipsCluster())("adding plants", () => {
  const cluster = withCluster();

  /** A database of its own with plants 1 to 25, and another client of it. */
  async function open({ delayMs = 0 } = {}) {
    await using stack = new AsyncDisposableStack();
    const proxy = stack.use(startProxy(cluster().port, { delayMs }));
    const database = stack.use(await openDatabase(cluster(), { proxies: [proxy] }));
    const rival = stack.use(database.connect());
    const fernOf = (id: number) => fern({ id });
    const add = (ids: readonly number[], timeoutMs?: number) =>
      database.add(ids.map(fernOf), timeoutMs);

    /** Adds plants, those that are unavailable again and again, and gives the outcomes in the end. */
    async function addAll(ids: readonly number[]): Promise<readonly StoreOutcome[]> {
      const outcomes = [...(await add(ids))];
      while (outcomes.includes("unavailable")) {
        await Bun.sleep(10);
        const left = ids.filter((_, index) => outcomes[index] === "unavailable");
        for (const [index, outcome] of (await add(left)).entries())
          outcomes[ids.indexOf(left[index] ?? 0)] = outcome;
      }

      return outcomes;
    }

    await add(range(1, 25));
    const opened = stack.move();
    return { ...database, rival, add, addAll, [Symbol.asyncDispose]: () => opened.disposeAsync() };
  }

  test.concurrent.each(HELD)(
    "%s makes only those plants unavailable",
    async (_, statement, held) => {
      await using server = await open();
      const { rival, add, addAll } = server;
      await rival.unsafe(`BEGIN; ${statement}`).simple();
      const outcomes = range(1, 50).map((id) =>
        held.includes(id) ? "unavailable" : id <= 25 ? "present" : "added",
      );
      expect(await add(range(1, 50))).toEqual(outcomes);

      await rival.unsafe("ROLLBACK");
      const later = range(1, 50).map((id) => (held.includes(id) && id > 25 ? "added" : "present"));
      expect(await addAll(range(1, 50))).toEqual(later);
    },
  );

  test.concurrent.each([
    ["COMMIT", "an INSERT", INSERT, [98, 99], ["present", "conflict"]],
    ["ROLLBACK", "an INSERT", INSERT, [98, 99], ["added", "added"]],
    ["COMMIT", "a DELETE", "DELETE FROM plants WHERE id = 1", [1, 97], ["added", "added"]],
  ] as const)(
    "a plant whose lock ends while it waits has its outcome: %s of %s",
    async (end, _what, statement, ids, outcomes) => {
      await using server = await open();
      const { rival, addAll, run } = server;

      await rival.unsafe(`BEGIN; ${statement}`).simple();
      const adding = addAll(ids);
      const waits = "datname = current_database() AND wait_event = 'transactionid'";
      while ((await run(`SELECT FROM pg_stat_activity WHERE ${waits}`)).length === 0)
        await Bun.sleep(1);
      await rival.unsafe(end);

      expect(await adding).toEqual([...outcomes]);
    },
  );

  test.concurrent.each([
    ["COMMIT", "an INSERT", INSERT, [98, 99], ["present", "conflict"]],
    ["ROLLBACK", "an INSERT", INSERT, [98, 99], ["added", "added"]],
    ["COMMIT", "a DELETE", DELETE, [1, 2], ["added", "added"]],
    ["ROLLBACK", "a DELETE", DELETE, [1, 2], ["present", "present"]],
  ] as const)(
    "a plant that was refused has its outcome after the end of the lock: %s of %s",
    async (end, _what, statement, ids, outcomes) => {
      await using server = await open();
      const { rival, add, addAll } = server;

      await rival.unsafe(`BEGIN; ${statement}`).simple();
      for (const _ of ["met", "refused"])
        expect(await add(ids)).toEqual(["unavailable", "unavailable"]);

      await rival.unsafe(end);
      expect(await addAll(ids)).toEqual([...outcomes]);
    },
  );

  test.concurrent(
    "plants that share a held id are all unavailable, and then the first of them is added",
    async () => {
      await using server = await open();
      const { rival, plants } = server;
      const names = ["Fern", "Moss", "Fern"];
      const addAllNames = () =>
        plants.add(
          names.map((name) => fern({ id: 98n, [TEXT]: name })),
          { timeoutMs: TEST_TIMEOUT_MS },
        );

      await rival.unsafe(`BEGIN; ${insertIvies(98)}`).simple();
      const refused = ["unavailable", "unavailable", "unavailable"] as const;
      for (const _ of ["met", "refused"]) expect(await addAllNames()).toEqual([...refused]);

      await rival.unsafe("ROLLBACK");
      let outcomes = await addAllNames();

      for (; outcomes.includes("unavailable"); outcomes = await addAllNames()) {
        expect(outcomes).toEqual([...refused]);
        await Bun.sleep(10);
      }

      expect(outcomes).toEqual(["added", "conflict", "present"]);
    },
  );

  // The index that REINDEX CONCURRENTLY builds refuses a plant that a rival has just stored.
  test.each(["plants_pkey_ccnew", "plants_pkey_ccold1", "plants_pkey_102008", "odd_pkey_ccnew"])(
    "a batch that %s refuses is added again",
    async (name) => {
      await using server = await open();
      const { add, metric, run } = server;
      await run(`CREATE UNIQUE INDEX ${name} ON plants ((id % 100))`);

      const adding = add([26, 101]);
      while (metric("retries_total") === 0) await Bun.sleep(1);
      await run(`DROP INDEX ${name}`);

      expect(await adding).toEqual(["added", "added"]);
    },
  );

  /**
   * How many transactions of a database were rolled back, once it is not used any more: at least so
   * many.
   */
  async function rollbacksIn(name: string, atLeast: number): Promise<number> {
    const statement = `SELECT xact_rollback AS count FROM pg_stat_database WHERE datname = '${name}'`;
    // A process of the server counts what happened to it when it ends.
    for (;;) {
      const count = Number((await cluster().run(statement))[0]?.["count"]);
      if (count >= atLeast) return count;
      await Bun.sleep(5);
    }
  }

  test("a held plant that is sent again and again holds up its batch once", async () => {
    await using server = await open();
    const { name, rival, add } = server;
    await rival.unsafe(`BEGIN; ${insertIvies(37)}`).simple();
    for (const id of range(100, 149)) expect(await add([37, id])).toEqual(["unavailable", "added"]);

    await rival.unsafe("ROLLBACK");
    await server[Symbol.asyncDispose]();

    // The batch, what is missing, and the plant; the rival's own; and at most one for each batch of
    // a later second.
    expect(await rollbacksIn(name, 4)).toBeLessThan(4 + 50);
  });

  test("one locked plant among many causes few errors in the server's log", async () => {
    // A statement for each of the others would take too long.
    await using server = await open({ delayMs: 2 });
    const { name, rival, add } = server;
    await rival.unsafe(`BEGIN; ${insertIvies(617)}`).simple();

    const outcomes = await add(range(1, 1_000));
    expect(
      outcomes.flatMap((outcome, index) => (outcome === "unavailable" ? [index + 1] : [])),
    ).toEqual([617]);

    await rival.unsafe("ROLLBACK");
    await server[Symbol.asyncDispose]();

    // The whole batch, what is missing, a part, a part of that, and the plant; and the rival's own.
    expect(await rollbacksIn(name, 6)).toBe(6);
  });

  test.concurrent(
    "if too many plants are locked, the others are added when they are sent again",
    async () => {
      await using server = await open();
      const { rival, add } = server;
      const held = [...range(1_000, 1_150), ...range(1_851, 2_000)];
      const others = range(1_151, 1_850);

      await rival.unsafe(`BEGIN; ${insertIvies(...held)}`).simple();
      for (let isDone = false; !isDone;) {
        const outcomes = await add(range(1_000, 2_000));
        expect(new Set(held.map((id) => outcomes[id - 1_000]))).toEqual(new Set(["unavailable"]));
        isDone = others.every((id) => outcomes[id - 1_000] !== "unavailable");
      }

      expect(new Set(await add(others))).toEqual(new Set(["present"]));
    },
  );

  test.concurrent(
    "a lock on the whole table makes no plant unavailable, if it ends in time",
    async () => {
      await using server = await open();
      const { rival, add, metric } = server;
      await rival.unsafe("BEGIN; LOCK TABLE plants IN SHARE MODE").simple();
      const adding = add(range(26, 50));
      const isRefused = adding.then(() => true);

      while (metric("retries_total") === 0 && !(await Promise.race([isRefused, Bun.sleep(5)])));
      await rival.unsafe("COMMIT");
      expect(new Set(await adding)).toEqual(new Set(["added"]));
    },
  );

  test.concurrent.each(["ACCESS EXCLUSIVE", "SHARE"])(
    "while the table is locked in %s mode, plants and probes fail in time; those still waiting at its end succeed",
    async (mode) => {
      await using server = await open();
      const { rival, add, plants } = server;
      await probe(server);
      await rival.unsafe(`BEGIN; LOCK TABLE plants IN ${mode} MODE`).simple();

      const refused = await add(range(26, 50), 1_000).catch(({ code, message }) => [
        `${code}: ${message}`,
      ]);
      for (const outcome of refused)
        expect(outcome).toMatch(/^(?:unavailable|storage_unavailable: storage did not fin)/);
      await expect(plants.probe()).rejects.toMatchObject({ code: "storage_unavailable" });

      const added = add(range(26, 50));
      await rival.unsafe("COMMIT");
      for (const outcome of await added) expect(outcome).toMatch(/^(?:added|present)$/);

      await probe(server);
    },
  );

  test.concurrent.each(["INSERT", "UPDATE"])(
    "the probe fails without the right to %s plants",
    async (right) => {
      const role = `lacks_${right.toLowerCase()}`;
      await cluster().run(`CREATE ROLE ${role} LOGIN`);
      await using database = await openDatabase(cluster(), { role });
      await probe(database);
      await database.run(`REVOKE ${right} ON plants FROM ${role}`);
      await expect(probe(database)).rejects.toMatchObject({ code: "42501" });
    },
  );

  test.concurrent(
    "after a reload with fsync off no plant is added, until it is on again",
    async () => {
      await using own = await startCluster();
      await using database = await openDatabase(own);
      const add = (id: bigint) => database.add([fern({ id })]);

      // On connections of their own.
      await Promise.all([10n, 11n, 12n, 13n].map(add));
      await own.set("fsync", "off");
      const refused = {
        code: "storage_unavailable",
        cause: { message: expect.stringContaining("fsync is off") },
      };
      await expect(probe(database)).rejects.toMatchObject(refused);
      await expect(add(2n)).rejects.toMatchObject(refused);

      await own.set("fsync", "on");
      expect(await add(2n)).toEqual(["added"]);

      await probe(database);
    },
  );

  test.concurrent("compares long texts exactly, and reads none of them back", async () => {
    using proxy = startProxy(cluster().port);
    await using database = await openDatabase(cluster(), { proxies: [proxy] });
    const { add } = database;

    // Around the length from which on a text is long, in bytes of UTF-8, and far above.
    const texts = [
      "",
      "x".repeat(255),
      "x".repeat(256),
      "x".repeat(257),
      "ü".repeat(128),
      "ü".repeat(129),
      "🌱".repeat(100_000),
    ];

    const stored = texts.flatMap((name, row) => [
      fern({ id: 3 * row, [TEXT]: name }),
      ...texts
        .slice(0, 2)
        .map((tag, column) =>
          fern({ id: 3 * row + column + 1, [TEXT]: name, [OPTIONAL_TEXT]: tag }),
        ),
    ]);
    stored.push(...texts.map((tag, row) => fern({ id: 1_000 + row, [OPTIONAL_TEXT]: tag })));

    expect(new Set(await add(stored))).toEqual(new Set(["added"]));

    const before = proxy.replyBytes();
    expect(new Set(await add(stored))).toEqual(new Set(["present"]));

    const others: readonly ((plant: NewPlant) => NewPlant)[] = [
      (plant) => ({ ...plant, [TEXT]: `${plant[TEXT]}y` }),
      (plant) => ({ ...plant, [TEXT]: plant[TEXT].replace(/.?$/u, "y") }),
      ({ [OPTIONAL_TEXT]: tag, ...plant }) =>
        tag === undefined ? { ...plant, [OPTIONAL_TEXT]: "" } : plant,
      (plant) => ({ ...plant, [OPTIONAL_TEXT]: `${plant[OPTIONAL_TEXT] ?? "x"}y` }),
    ];

    for (const other of others)
      expect(new Set(await add(stored.map(other)))).toEqual(new Set(["conflict"]));
    expect(proxy.replyBytes() - before).toBeLessThan(100_000);
  });
});
