import { describe, expect, setDefaultTimeout, test } from "bun:test";

import type { DatabaseAccess, OnWarning } from "../../../src/database/adapter.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { fern, insertOf, moss } from "../../support/plants.ts";
import { skipsCluster, startCluster, waitingProcess } from "../../support/postgres.ts";
import { openPostgres, probe } from "../../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

const FERN = fern();
const MOSS = moss({ id: 2n });

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A primary whose commits wait for its standby. The tables are on both. */
async function startPair() {
  await using stack = new AsyncDisposableStack();
  const primary = stack.use(await startCluster());
  const toPrimary = stack.use(startProxy(primary.port));
  const standby = stack.use(await startCluster({ primary: toPrimary }));
  await primary.waitForStandby();

  const before = stack.use(startProxy(primary.port));

  const hosts = [before, standby].map(({ port }) => `127.0.0.1:${port}`).join();
  const open = (access: DatabaseAccess = "write", role = "postgres", onWarning?: OnWarning) => {
    const url = parsePostgresUrl(`postgres://${role}@${hosts}/postgres?connect_timeout=60`);
    return openPostgres(url, { access, isServing: access !== "read", onWarning });
  };
  await (await open("create"))[Symbol.asyncDispose]();
  const opened = stack.move();

  return {
    primary,
    standby,
    open,
    /** How many connections clients have made to the primary. */
    connections: before.connections,
    /** From now on the standby receives nothing: what the primary commits waits. */
    separate: () => toPrimary.set("black hole"),
    promote: () => standby.run("SELECT pg_promote()"),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

describe.skipIf(skipsCluster())("once the standby was promoted", () => {
  test("tokens are read where plants are stored, although the old primary lives", async () => {
    await using pair = await startPair();
    await using database = await pair.open();
    const digest = new Uint8Array(32);
    await database.tokens.add({
      name: "phone",
      digest,
      createdAt: new Date(),
      expiresAt: null,
      scopes: [],
    });
    await using reader = await pair.open();
    expect(await reader.tokens.list()).toMatchObject([{ name: "phone", revokedAt: null }]);

    pair.separate();
    await pair.promote();
    expect(await reader.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
    expect(await pair.standby.run("SELECT id FROM plants")).toEqual([{ id: "1" }]);

    const revokedAt = new Date("2026-01-01T00:00:00.000Z");
    expect(await database.tokens.revoke("phone", revokedAt)).toBe(true);
    expect(await reader.tokens.list()).toMatchObject([{ name: "phone", revokedAt }]);
  });

  test("a server warns that the new primary names no standby, and has a metric of it", async () => {
    await using pair = await startPair();
    const warnings: string[] = [];
    await using database = await pair.open("write", "postgres", (line) => warnings.push(line));
    const named = () =>
      database.metrics().find(({ name }) => name === "plant_store_postgres_standbys_named")?.value;

    await probe(database);
    expect([named(), warnings]).toEqual([1, []]);

    pair.separate();
    await pair.promote();
    expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
    for (const _ of ["first", "second"]) await probe(database);
    expect([named(), warnings]).toEqual([
      0,
      [
        "New plants are on one server only: synchronous_standby_names is empty, and was 'standby' before",
      ],
    ]);
  });

  test("a pause of the new primary brings no client back to the old one", async () => {
    await using pair = await startPair();
    await using database = await pair.open();
    const row = { digest: new Uint8Array(32), createdAt: new Date(), expiresAt: null, scopes: [] };
    await database.tokens.add({ ...row, name: "phone" });
    pair.separate();
    await pair.promote();
    expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
    const revokedAt = new Date("2026-01-01T00:00:00.000Z");
    expect(await database.tokens.revoke("phone", revokedAt)).toBe(true);

    pair.standby.signalAll("SIGSTOP");
    const before = pair.connections();
    // Reading waits for two seconds: the old primary is asked meanwhile, and would respond.
    const failure = await database.tokens.revision().catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "storage_unavailable" });
    expect(pair.connections()).toBeGreaterThan(before);

    pair.standby.signalAll("SIGCONT");
    expect(await database.tokens.list()).toMatchObject([{ name: "phone", revokedAt }]);
  });

  test("pages() has no plant that only the killed primary had", async () => {
    await using pair = await startPair();
    await using database = await pair.open("read");
    await pair.primary.run(insertOf(FERN));

    // A row that is visible and on no standby.
    pair.separate();
    await using client = pair.primary.connect();
    const inserting = client.unsafe(insertOf(MOSS)).catch(() => {});
    const ended = await waitingProcess(pair.primary);
    await pair.primary.run(`SELECT pg_terminate_backend(${ended})`);
    await inserting;
    expect(await pair.primary.run("SELECT id FROM plants WHERE id = 2")).toHaveLength(1);

    const reading = Array.fromAsync(database.pages());
    await waitingProcess(pair.primary);
    await pair.primary.kill();
    await pair.promote();
    expect((await reading).flat()).toEqual([FERN]);
  });

  test("pages() has what the new primary acknowledged, although the old one lives and is empty", async () => {
    await using pair = await startPair();
    pair.separate();
    await pair.promote();
    await pair.standby.run(insertOf(MOSS));

    await using database = await pair.open("read");
    expect((await Array.fromAsync(database.pages())).flat()).toEqual([MOSS]);
  });
});

test.skipIf(skipsCluster())(
  "a role that may not see the timeline is served all the same",
  async () => {
    await using pair = await startPair();
    await pair.primary.run(
      "CREATE ROLE gardener LOGIN",
      "GRANT ALL ON ALL TABLES IN SCHEMA public TO gardener",
      "REVOKE EXECUTE ON FUNCTION pg_control_system FROM PUBLIC",
    );
    await using database = await pair.open("write", "gardener");
    expect(await database.plants.add([FERN], { timeoutMs: TEST_TIMEOUT_MS })).toEqual(["added"]);
  },
);
