import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Io } from "../../src/commands/output.ts";
import { type PostgresCluster, skipsCluster } from "../support/postgres.ts";
import { shortenDeadlines } from "../support/deadlines.ts";
import { withEmptyDatabase } from "../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A commit that waits for a synchronous standby. */
const WAITS_FOR_STANDBY = "SELECT 1 AS one FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/** A statement that waits for another transaction to end. */
const WAITS_FOR_LOCK = "SELECT 1 AS one FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

describe.skipIf(skipsCluster())("the schema on PostgreSQL", () => {
  let cluster: PostgresCluster;
  let database: string;
  withEmptyDatabase((current, url) => ([cluster, database] = [current, url]));

  const plantStore = (args: readonly string[], url = database, options: Partial<Io> = {}) =>
    runCommand(args, { DATABASE_URL: url }, options);

  async function tables(): Promise<unknown[]> {
    const rows = await cluster.run("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'");
    return rows.map(({ name }) => name);
  }

  test("migrate prints the SQL, then applies it, then finds nothing to do", async () => {
    const dry = await plantStore(["migrate", "--dry-run"]);
    expect(dry).toMatchObject({ exitCode: 0, stderr: "", stdout: expect.stringContaining('CREATE TABLE "plants"') });
    expect(await tables()).toEqual([]);
    expect(await plantStore(["migrate"])).toEqual({
      exitCode: 0,
      stdout: "",
      stderr: "Applied 0000_plants_and_tokens\n",
    });
    const again = { exitCode: 0, stdout: "", stderr: "Nothing to do: the schema is up to date\n" };
    expect(await plantStore(["migrate"])).toEqual(again);
    expect(await plantStore(["migrate", "--dry-run"])).toEqual(again);
    expect(await plantStore(["migrate", "--database", "file:plants.db"])).toEqual({
      exitCode: 2,
      stdout: "",
      stderr: "Cannot migrate a SQLite database: every command that writes to it migrates it\n",
    });
  });

  test("what migrate prints is one transaction for any client, and not cut off by a statement_timeout", async () => {
    const { stdout: script } = await plantStore(["migrate", "--dry-run"]);
    // What succeeds waits for twice as long as the statement_timeout.
    for (const [end, made, waitMs] of [
      ["COMMIT", false, 0],
      ["ROLLBACK", true, 600],
    ] as const) {
      await using rival = cluster.connect();
      await rival.unsafe("BEGIN; CREATE TABLE tokens (name text)").simple();
      await using client = cluster.connect();
      await client.unsafe("SET statement_timeout = '300ms'");
      const applied = runEach(client, script);
      const waits = `${WAITS_FOR_LOCK} AND query_start < now() - interval '${waitMs}ms'`;
      while ((await cluster.run(waits)).length === 0) await Bun.sleep(20);
      await rival.unsafe(end);
      expect(await applied).toBe(made);
      if (made) continue;
      expect(await tables()).toEqual(["tokens"]);
      await rival.unsafe("DROP TABLE tokens");
    }
    expect(await plantStore(["migrate"])).toMatchObject({ stderr: "Nothing to do: the schema is up to date\n" });

    /** Sends one statement after another, and goes on after one that fails, as psql does. */
    async function runEach(client: Bun.SQL, statements: string): Promise<boolean> {
      let failures = 0;
      for (const statement of statements.split(/;$/m))
        await client
          .unsafe(statement)
          .simple()
          .catch(() => failures++);
      return failures === 0;
    }
  });

  test("serve says so when the schema cannot be made in time, and migrate waits until it is asked to end", async () => {
    using _ = shortenDeadlines();
    await cluster.set("synchronous_standby_names", "nobody");
    try {
      const stop = new AbortController();
      const stopped = plantStore(["migrate"], database, { stop: stop.signal });
      while ((await cluster.run(WAITS_FOR_STANDBY)).length === 0) await Bun.sleep(5);
      stop.abort();
      expect(await stopped).toEqual({
        exitCode: 1,
        stdout: "",
        stderr: "Stopped: the schema may or may not be up to date\n",
      });
      const late = {
        exitCode: 1,
        stdout: "",
        stderr: 'Cannot open database "postgres": it did not respond in time (DEADLINE)\n',
      };
      expect(await plantStore(["serve", "--port", "0"])).toEqual(late);
    } finally {
      await cluster.set("synchronous_standby_names", "");
    }
    while ((await cluster.run(WAITS_FOR_STANDBY)).length > 0) await Bun.sleep(5);
    expect(await plantStore(["migrate"])).toMatchObject({
      exitCode: 0,
      stderr: "Nothing to do: the schema is up to date\n",
    });
  });
});
