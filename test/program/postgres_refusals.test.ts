import { afterAll, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { expectLateCommands, LATE_COMMANDS, LOOK, NO_FIRST_TOKEN } from "../faults/postgres_refusals.ts";
import { shortenDeadlines } from "../support/deadlines.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../support/postgres.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** How long reading and changing tokens may take, in milliseconds. */
const DEADLINE_MS = 10_000;

/** What a server logs that finds the clock of a test gone on. */
const CLOCK_PASSED = /^.*"message":"Event loop blocked".*\n/m;

const WAITS_FOR_LOCK = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
const WAITS_FOR_STANDBY = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

describe.skipIf(skipsCluster())("PostgreSQL that does not respond in time", () => {
  let cluster: PostgresCluster;
  let database: string;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  beforeEach(async () => {
    database = await cluster.emptyDatabase();
    expect(await plantStore(["migrate"])).toMatchObject({ exitCode: 0 });
  });
  afterAll(() => cluster[Symbol.asyncDispose]());

  const plantStore = (args: readonly string[]) => runCommand(args, { DATABASE_URL: database });

  /** Waits until so many connections have waited for another transaction: each ends that after a while, and begins again. */
  async function waitForLocks(count: number): Promise<void> {
    const pids = new Set<unknown>();
    while (pids.size < count) {
      for (const { pid } of await cluster.run(WAITS_FOR_LOCK)) pids.add(pid);
      await Bun.sleep(5);
    }
  }

  test("ends commands on tokens, and the start of a server, in one line", async () => {
    using clock = shortenDeadlines();
    await using rival = cluster.connect();
    await rival.unsafe("BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE").simple();
    const refused = expectLateCommands(async (args) => {
      const { stderr, ...ended } = await plantStore(args);
      return { ...ended, stderr: stderr.replace(CLOCK_PASSED, "") };
    });
    await waitForLocks(LATE_COMMANDS.length);
    clock.pass(DEADLINE_MS);
    await refused;
    await rival.unsafe("ROLLBACK");
  });

  /** Starts a server in this process, and stops it once it waits. */
  async function stopAtWait(wait: string) {
    const stop = new AbortController();
    const starting = runCommand(["serve", "--port", "0"], { DATABASE_URL: database }, { stop: stop.signal });
    while ((await cluster.run(wait)).length === 0) await Bun.sleep(5);
    stop.abort();
    return await starting;
  }

  test("ends the start of a server at a signal, while it waits for the tokens", async () => {
    await using rival = cluster.connect();
    await rival.unsafe("BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE").simple();
    const { exitCode, stderr } = await stopAtWait(WAITS_FOR_LOCK);
    expect([exitCode, stderr]).toEqual([0, expect.stringMatching(/^\{[^\n]*"Stopping: [^\n]*\n$/)]);
    await rival.unsafe("ROLLBACK");
  });

  test("ends a server at a signal, while it waits for its first token to be stored", async () => {
    await cluster.set("synchronous_standby_names", "nobody");
    try {
      const { exitCode, stderr } = await stopAtWait(WAITS_FOR_STANDBY);
      expect(exitCode).toBe(0);
      expect(stderr).not.toMatch(NO_FIRST_TOKEN);
    } finally {
      await cluster.set("synchronous_standby_names", "");
    }
  });

  test("says in one line that a role may not delete tokens", async () => {
    await cluster.run(
      "CREATE ROLE keeper LOGIN",
      "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO keeper",
    );
    database = cluster.url("postgres", "keeper");
    expect(await plantStore(["token", "prune"])).toEqual({
      exitCode: 1,
      stdout: "",
      stderr: `Cannot prune the tokens in database "postgres": the user lacks a privilege (42501)${LOOK}\n`,
    });
  });
});
