import { beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";

import { post, TOKEN, untilTokenIs } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { newPlants, postBytes, verdictOf } from "../support/load.ts";
import { jsonOf } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { LONG_TEST_TIMEOUT_MS, startServer } from "../support/program.ts";
import { readError } from "../support/responses.ts";
import { runCommand } from "../support/stream_io.ts";
import { ask, get, stop } from "./health.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** A statement that waits for another transaction to end. */
const WAITS_FOR_LOCK =
  "SELECT 1 AS one FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";

describe.skipIf(skipsCluster())("a server on PostgreSQL", () => {
  const cluster = withCluster({ timeoutMs: LONG_TEST_TIMEOUT_MS });

  // Building it stops this process, where the deadlines of commands run.
  beforeAll(() => void executable());

  /** A database with nothing in it, and what runs a command on it. */
  async function emptyDatabase() {
    const database = await cluster().newDatabase();
    return {
      ...database,
      plantStore: (...args: string[]) => runCommand(args, { DATABASE_URL: database.url }),
    };
  }

  test.concurrent.each([
    "SELECT FROM tokens FOR UPDATE",
    "LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE",
  ])(
    "a server is ready and stores plants while the tokens are locked, and reads them afterwards: %s",
    async (lock) => {
      await using database = await emptyDatabase();
      const token = (await database.plantStore("token", "create", "greenhouse")).stdout.trim();
      const env = { AUTH_TOKENS: TOKEN, DATABASE_URL: database.url };
      await using server = await startServer({ env });
      const next = newPlants("locked tokens");
      await using rival = database.connect();
      await rival.unsafe(`BEGIN; ${lock}`).simple();

      // That it was used is to be recorded, and waits.
      expect((await post(server.url, jsonOf(next()), { token })).status).toBe(200);

      while ((await database.run(WAITS_FOR_LOCK)).length === 0) await Bun.sleep(5);
      const probedAt = await lastProbe();

      while ((await lastProbe()) === probedAt) {
        expect(await get(server.url, "/readyz")).toBe("200");
        expect(verdictOf(await ask(server.url, postBytes(next())))).toBe("200");
        await Bun.sleep(20);
      }

      await rival.unsafe("COMMIT");
      expect(await database.plantStore("token", "revoke", "greenhouse")).toMatchObject({
        exitCode: 0,
      });

      await untilTokenIs(401, server.url, token);
      while ((await database.run("SELECT FROM tokens WHERE last_used_at IS NULL")).length > 0)
        await Bun.sleep(20);

      async function lastProbe(): Promise<unknown> {
        return (await database.run("SELECT max(probed_at)::text AS at FROM probes"))[0]?.["at"];
      }
    },
  );

  type TestDatabase = Awaited<ReturnType<typeof emptyDatabase>>;

  /** The process behind a connection that is as the condition says. */
  async function pidWhere({ run }: TestDatabase, condition: string): Promise<number> {
    const select = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND ${condition}`;
    let found = await run(select);
    for (; found.length === 0; found = await run(select)) await Bun.sleep(5);
    return Number(found[0]?.["pid"]);
  }

  /** Stops the process that a server reads tokens through, while it waits for the next statement. */
  async function stopIdle(database: TestDatabase): Promise<number> {
    const pid = await pidWhere(
      database,
      `query ~ '^select "revision"|from "tokens"' AND state = 'idle'`,
    );
    process.kill(pid, "SIGSTOP");
    return pid;
  }

  /** Stops it inside a statement: to others it works on. */
  async function stopAtWork(database: TestDatabase): Promise<number> {
    await using rival = database.connect();
    await rival.unsafe("BEGIN; LOCK TABLE token_revision IN ACCESS EXCLUSIVE MODE").simple();
    const waits = `query ~ '^select "revision"' AND wait_event_type = 'Lock'`;

    for (;;) {
      const pid = await pidWhere(database, waits);
      process.kill(pid, "SIGSTOP");
      const still = await database.run(
        `SELECT pid FROM pg_stat_activity WHERE pid = ${pid} AND ${waits}`,
      );
      if (still.length > 0) return pid;

      // It had waited for as long as it may, and the next one has begun.
      process.kill(pid, "SIGCONT");
    }
  }

  test.concurrent.each([
    ["between two statements", stopIdle],
    ["inside a statement", stopAtWork],
  ])(
    "a revocation takes effect even if the connection that reads tokens hangs %s",
    async (_, stopReading) => {
      await using database = await emptyDatabase();
      const token = (await database.plantStore("token", "create", "greenhouse")).stdout.trim();
      await using server = await startServer({ env: { DATABASE_URL: database.url } });
      const next = newPlants("a hanging connection");
      expect((await post(server.url, jsonOf(next()), { token })).status).toBe(200);

      const pid = await stopReading(database);
      try {
        expect(await database.plantStore("token", "revoke", "greenhouse")).toMatchObject({
          exitCode: 0,
        });
        await untilTokenIs(401, server.url, token);
        expect(await stop(server)).toBe(0);
        expect(await server.stderr.end).not.toContain("Cannot reload tokens");
      } finally {
        process.kill(pid, "SIGCONT");
      }
    },
  );

  test.concurrent(
    "clients are told that a database is read-only, and a server without its privilege is not ready",
    async () => {
      await using database = await emptyDatabase();
      await database.run("CREATE ROLE gardener LOGIN", "GRANT ALL ON SCHEMA public TO gardener");
      const url = database.url.replace("postgres@", "gardener@");

      // A tenth of it is for saying why: on a busy machine a tenth of a second is too short.
      const env = { AUTH_TOKENS: TOKEN, DATABASE_URL: url, REQUEST_TIMEOUT_MS: "4000" };
      await using server = await startServer({ env });
      const endSessions =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gardener'";

      await database.run("ALTER ROLE gardener SET default_transaction_read_only = on", endSessions);
      expect(await readError(await post(server.url))).toMatchObject({
        error: 5032,
        message: expect.stringContaining("storage is read-only"),
      });

      await database.run("ALTER ROLE gardener RESET default_transaction_read_only");
      expect((await post(server.url)).status).toBe(200);

      await database.run("ALTER TABLE plants OWNER TO postgres");
      expect(await get(server.url, "/readyz")).toBe("503/5032");

      await database.run("ALTER TABLE plants OWNER TO gardener");
      while ((await fetch(`${server.url}/readyz`)).status !== 200) await Bun.sleep(50);
    },
  );
});
