import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Connection } from "../../../src/database/postgres/connection.ts";
import { connectPostgres } from "../../../src/database/postgres/connector.ts";
import { LANES, openPostgres } from "../../../src/database/postgres/database.ts";
import { addPlants } from "../../../src/database/postgres/plants.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import type { Database } from "../../../src/database/database.ts";
import { type GroupCommit, groupCommit } from "../../../src/group_commit/group_commit.ts";
import type { PlantStore } from "../../../src/database/plant_store.ts";
import { type PostgresCluster, skipsCluster } from "../../support/postgres.ts";
import { withCluster } from "../../support/postgres_hooks.ts";
import { LONG_TEST_TIMEOUT_MS, TEST_TIMEOUT_MS } from "../../support/program.ts";
import { range } from "../../support/scale.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const REFUSED =
  /^storage_unavailable: storage did not finish in time; the plant may or may not be stored, send it again( later)?$/;

/** A statement that was given up at the deadline may still have waited, and stored the plant. */
const STORED = /^(?:added|present)$/;

describe.skipIf(skipsCluster())("plants that other transactions hold", () => {
  let cluster: PostgresCluster;
  withCluster((started) => (cluster = started));

  /** A server's group commit over a database of its own, and another client of it. */
  async function openCommits() {
    await using stack = new AsyncDisposableStack();
    const { url, connect, run } = stack.use(await cluster.newDatabase());
    const database = stack.use(await openPostgres(parsePostgresUrl(url)));
    const rival = stack.use(connect());
    /** A group commit whose plants may wait for so long. */
    const commitsWithin = (timeoutMs: number) => groupCommit(database.plants, { lanes: LANES, timeoutMs });
    const opened = stack.move();
    return {
      database,
      commits: commitsWithin(TEST_TIMEOUT_MS),
      commitsWithin,
      rival,
      async storedIds(): Promise<readonly number[]> {
        return (await run("SELECT id::int AS id FROM plants ORDER BY id")).map(({ id }) => Number(id));
      },
      [Symbol.asyncDispose]: () => opened.disposeAsync(),
    };
  }

  /** The ids by which {@linkcode measuredDeadline} measures. */
  const MEASURED = range(30_001, 30_050);

  /** How long plants may take, in milliseconds, so that all are stored in time that nobody holds: more on a busy machine. */
  async function measuredDeadline(commits: GroupCommit): Promise<number> {
    const start = performance.now();
    await addAll(commits, MEASURED);
    return 2_500 + 10 * (performance.now() - start);
  }

  /** Adds a plant under each id, at once, and tells the outcome of each, or why it has none. */
  function addAll(commits: GroupCommit, ids: readonly number[]): Promise<string[]> {
    return Promise.all(ids.map((id) => commits.add(fern(id)).catch(({ code, message }) => `${code}: ${message}`)));
  }

  test.concurrent(
    "of 50 all are stored but the one that an insert holds, which is refused at its deadline",
    async () => {
      await using server = await openCommits();
      const { commits, commitsWithin, rival, storedIds } = server;
      const deadlineMs = await measuredDeadline(commits);
      await rival.unsafe("BEGIN; INSERT INTO plants VALUES (17, 'Ivy')").simple();
      const outcomes = await addAll(commitsWithin(deadlineMs), range(1, 50));
      expect(outcomes.splice(16, 1)).toEqual([expect.stringMatching(REFUSED)]);
      expect(new Set(outcomes)).toEqual(new Set(["added"]));
      expect(await storedIds()).toEqual([...range(1, 50).filter((id) => id !== 17), ...MEASURED]);
      await rival.unsafe("ROLLBACK");
      expect(await addAll(commits, [17])).toEqual([expect.stringMatching(STORED)]);
    },
  );

  for (const held of [
    [17, 18],
    [1, 50],
    [1, 10, 20, 30, 40, 50],
  ]) {
    test.concurrent(`of 50 those that an insert holds wait, and no others: ${held.join(", ")}`, async () => {
      await using server = await openCommits();
      const { commits, rival, storedIds } = server;
      await rival.unsafe(`BEGIN; INSERT INTO plants SELECT unnest('{${held}}'::bigint[]), 'Ivy'`).simple();
      const others = range(1, 50).filter((id) => !held.includes(id));
      const [late, outcomes] = [addAll(commits, held), await addAll(commits, others)];
      expect(new Set(outcomes)).toEqual(new Set(["added"]));
      expect(await storedIds()).toEqual(others);
      expect(commits.size()).toBe(held.length);
      await rival.unsafe("ROLLBACK");
      expect(new Set(await late)).toEqual(new Set(["added"]));
    });
  }

  test.concurrent("of 50 those wait whose rows another transaction has locked or deleted, and no others", async () => {
    await using server = await openCommits();
    const { commits, rival, storedIds } = server;
    await addAll(commits, range(1, 25));
    await rival
      .unsafe("BEGIN; SELECT FROM plants WHERE id IN (3, 4) FOR UPDATE; DELETE FROM plants WHERE id = 20")
      .simple();
    const present = range(1, 25).filter((id) => ![3, 4, 20].includes(id));
    const late = addAll(commits, [3, 4, 20]);
    const outcomes = await Promise.all([present, range(26, 50)].map((ids) => addAll(commits, ids)));
    expect(outcomes.map((some) => [...new Set(some)])).toEqual([["present"], ["added"]]);
    expect(commits.size()).toBe(3);
    await rival.unsafe("COMMIT");
    expect(await late).toEqual(["present", "present", "added"]);
    expect(await storedIds()).toEqual(range(1, 50));
  });

  test.concurrent("a plant whose lock ends before its deadline is stored, and so are the others before", async () => {
    await using server = await openCommits();
    const { commits, rival } = server;
    await rival.unsafe("BEGIN; INSERT INTO plants VALUES (8, 'Fern'), (9, 'Ivy'), (10, 'Fern')").simple();
    const held = addAll(commits, [8, 9]);
    expect(new Set(await addAll(commits, [...range(1, 7), ...range(11, 50)]))).toEqual(new Set(["added"]));
    await rival.unsafe("COMMIT");
    expect(await held).toEqual(["present", "conflict"]);
  });

  test.concurrent("more batches with a locked plant than there are lanes keep no other plant waiting", async () => {
    await using server = await openCommits();
    const { commits: patient, database, rival } = server;
    const left = new Set<number>();
    const add: PlantStore["add"] = (batch, options) => {
      for (const { id } of batch) left.add(Number(id));
      return database.plants.add(batch, options);
    };
    const timeoutMs = await measuredDeadline(patient);
    const commits = groupCommit({ ...database.plants, add }, { lanes: LANES, timeoutMs });
    const locked = range(1, LANES + 2);
    await rival.unsafe(`BEGIN; INSERT INTO plants SELECT generate_series(1, ${locked.length}), 'Ivy'`).simple();
    const held: Promise<string[]>[] = [];
    const others: Promise<string[]>[] = [];
    for (const id of locked) {
      held.push(addAll(commits, [id]));
      others.push(addAll(commits, range(1_000 * id, 1_000 * id + 4)));
      // So that the next one is in a batch of its own.
      while (!left.has(id)) await Bun.sleep(1);
    }
    // One after another: each would wait for a lane if the locked ones kept them.
    for (const id of range(101, 110)) expect(await commits.add(fern(id))).toBe("added");
    expect(new Set((await Promise.all(others)).flat())).toEqual(new Set(["added"]));
    for (const outcome of (await Promise.all(held)).flat()) expect(outcome).toMatch(REFUSED);
  });

  for (const mode of ["ACCESS EXCLUSIVE", "SHARE"]) {
    test.concurrent(
      `a table locked in ${mode} mode refuses all in time, and takes all that still wait when it ends`,
      async () => {
        await using server = await openCommits();
        const { database, commits, commitsWithin, rival } = server;
        // A lane is connected then: the time is for its statement.
        await commits.add(fern(1));
        await rival.unsafe(`BEGIN; LOCK TABLE plants IN ${mode} MODE`).simple();
        for (const outcome of await addAll(commitsWithin(1_000), range(1, 50))) expect(outcome).toMatch(REFUSED);
        const [before, added] = [statements(database), addAll(commits, range(1, 50))];
        while (statements(database) === before) await Bun.sleep(5);
        await rival.unsafe("COMMIT");
        for (const outcome of await added) expect(outcome).toMatch(STORED);
      },
    );
  }

  describe("addPlants()", () => {
    /** A connection to a database of its own that counts its statements, and another client of it. */
    async function countingConnection() {
      await using stack = new AsyncDisposableStack();
      const { url, connect } = stack.use(await cluster.newDatabase());
      const connection = await connectPostgres(parsePostgresUrl(url), { writable: true, timeoutMs: TEST_TIMEOUT_MS });
      stack.defer(() => connection.close());
      const rival = stack.use(connect());
      const opened = stack.move();
      let statements = 0;
      const query: Connection["query"] = (statement, parameters) => {
        statements++;
        return connection.query(statement, parameters);
      };
      return {
        rival,
        add: (ids: readonly number[], timeoutMs = TEST_TIMEOUT_MS) =>
          addPlants({ ...connection, query }, ids.map(fern), performance.now() + timeoutMs),
        statements: () => statements,
        lockTimeout: async () =>
          (await connection.query<{ lock_timeout: string }>("SHOW lock_timeout"))[0]?.lock_timeout,
        [Symbol.asyncDispose]: () => opened.disposeAsync(),
      };
    }

    test.concurrent("halves nothing where the whole table is locked, one plant is, or no time is left", async () => {
      await using connection = await countingConnection();
      const { rival } = connection;
      await rival.unsafe("BEGIN; INSERT INTO plants VALUES (1, 'Ivy')").simple();
      expect(await connection.add([1])).toEqual(["locked"]);
      expect(connection.statements()).toBe(1);
      expect(await connection.add([1, 2], 0)).toEqual(["locked", "locked"]);
      expect(connection.statements()).toBe(2);
      await rival.unsafe("ROLLBACK; BEGIN; LOCK TABLE plants").simple();
      expect(new Set(await connection.add(range(1, 1_000)))).toEqual(new Set(["locked"]));
      expect(connection.statements()).toBe(6);
    });

    test.concurrent("ends halving where too many plants are locked, and finds others when called again", async () => {
      await using connection = await countingConnection();
      const { rival } = connection;
      // Whichever half is always the first, it takes all the time there is.
      const held = [...range(1, 150), ...range(851, 1_000)];
      await rival.unsafe(`BEGIN; INSERT INTO plants SELECT unnest('{${held}}'::bigint[]), 'Ivy'`).simple();
      let found = 0;
      for (let call = 0; call < 15 && found === 0; call++) {
        const before = connection.statements();
        const outcomes = await connection.add(range(1, 1_000));
        expect(connection.statements() - before).toBeLessThan(300);
        expect(new Set(held.map((id) => outcomes[id - 1]))).toEqual(new Set(["locked"]));
        found = outcomes.filter((outcome) => outcome === "added").length;
      }
      expect(found).toBeGreaterThan(0);
    });

    // Not beside others: it has a second for all of its statements.
    test("finds one lock among 1,000 plants by halving, and waits for locks as before afterwards", async () => {
      await using connection = await countingConnection();
      const { rival } = connection;
      await rival.unsafe("BEGIN; INSERT INTO plants VALUES (617, 'Ivy')").simple();
      const before = await connection.lockTimeout();
      const outcomes = await connection.add(range(1, 1_000));
      expect(outcomes.flatMap((outcome, index) => (outcome === "added" ? [] : [[index + 1, outcome]]))).toEqual([
        [617, "locked"],
      ]);
      // All, two settings, none, and two halves at each of ten levels.
      expect(connection.statements()).toBeLessThanOrEqual(24);
      expect(await connection.lockTimeout()).toBe(before);
    });
  });
});

/** How many batches came back from the database. */
function statements(database: Database): number | undefined {
  return database.metrics().find(({ name }) => name === "plant_store_postgres_statements_total")?.value;
}

function fern(id: number) {
  return { id: BigInt(id), name: "Fern" };
}
