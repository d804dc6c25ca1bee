import { afterAll, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { run } from "../../src/commands/program.ts";
import {
  expectDeletable,
  expectLateCommands,
  LATE_COMMANDS,
  LOOK,
  NO_FIRST_TOKEN,
} from "../faults/postgres_refusals.ts";
import { assertNoSecrets } from "../support/assert_no_secrets.ts";
import { shortenDeadlines } from "../support/deadlines.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../support/postgres.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand, streamIo } from "../support/stream_io.ts";

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

  /** A server in this process, where its deadlines come sooner. */
  async function serve() {
    const stop = new AbortController();
    const { io, stderr } = streamIo({ stop: stop.signal });
    const exited = run(["serve", "--port", "0"], { DATABASE_URL: database }, io);
    let hasEnded = false;
    void exited.finally(() => (hasEnded = true));
    const until = async (pattern: RegExp): Promise<RegExpExecArray> => {
      for (let match = pattern.exec(stderr()); ; match = pattern.exec(stderr())) {
        if (match !== null) return match;
        if (hasEnded) throw new Error(`The server ended without ${pattern}:\n${stderr()}`);
        await Bun.sleep(5);
      }
    };
    const [, url = ""] = await until(/listens on (http:\/\/[^\s",]+)/);
    return {
      url,
      stderr,
      until,
      async stop(): Promise<number> {
        stop.abort();
        return await exited;
      },
      async [Symbol.asyncDispose]() {
        stop.abort();
        await exited;
        assertNoSecrets(stderr());
      },
    };
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

  test("lets a server go on without a first token, and a token without a secret can be deleted", async () => {
    using clock = shortenDeadlines();
    await cluster.set("synchronous_standby_names", "nobody");
    const creating = plantStore(["token", "create", "new"]);
    await using server = await serve();
    // Of the two one waits for the other's.
    await waitForLocks(1);
    clock.pass(DEADLINE_MS);
    await server.until(NO_FIRST_TOKEN);
    await expectDeletable({ cluster, plantStore, creating, url: server.url });
    expect(await server.stop()).toBe(0);
  });

  test("ends the start of a server at a signal, while it waits for the tokens", async () => {
    await using rival = cluster.connect();
    await rival.unsafe("BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE").simple();
    const stop = new AbortController();
    const starting = runCommand(["serve", "--port", "0"], { DATABASE_URL: database }, { stop: stop.signal });
    await waitForLocks(1);
    stop.abort();
    expect(await starting).toEqual({ exitCode: 0, stdout: "", stderr: "" });
    await rival.unsafe("ROLLBACK");
  });

  test("ends a server at a signal, while it waits for its first token to be stored", async () => {
    await cluster.set("synchronous_standby_names", "nobody");
    try {
      await using server = await serve();
      while ((await cluster.run(WAITS_FOR_STANDBY)).length === 0) await Bun.sleep(5);
      expect(await server.stop()).toBe(0);
      expect(server.stderr()).not.toMatch(NO_FIRST_TOKEN);
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
      stderr: `Cannot prune the tokens in database "postgres": the user may not do what is needed (42501)${LOOK}\n`,
    });
  });
});
