import { beforeEach, describe, expect, spyOn, test } from "bun:test";

import { post, untilTokenIs } from "../support/client.ts";
import { databaseFixture } from "../support/database_fixture.ts";
import { fern } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { runCommand } from "../support/stream_io.ts";

/** How long reading and changing tokens may take, in milliseconds. */
const DEADLINE_MS = 10_000;

/** Of a lock that does not end, the wait for it or the whole time ends first. */
const LATE = String.raw`(?:another transaction held a lock for too long \(55P03\)|it did not respond in time \(DEADLINE\))`;

/** What to do after a change whose outcome is unknown. */
const AGAIN = "; it may be done: run it again";

/** What to do after a token was made, or was not. */
const SECRET_NOT_SHOWN =
  '; if it exists now, its secret was not shown: run plant-store token delete new --database "$DATABASE_URL"';

/** Commands that read or change tokens: how each says that it could not in time. */
const LATE_COMMANDS = [
  ["token list", "list the tokens", ""],
  ["token create new", 'create token "new"', SECRET_NOT_SHOWN],
  ["token revoke old", 'revoke token "old"', AGAIN],
  ["token delete old --yes", 'delete token "old"', AGAIN],
  ["token prune", "prune the tokens", AGAIN],
  ["serve --port 0", "read the tokens", ""],
] as const;

/** The line of a command that could not do this in time. */
function lateLine(action: string, advice: string): RegExp {
  return new RegExp(`^Cannot ${action} in database "postgres": ${LATE}${RegExp.escape(advice)}\n$`);
}

/** The line of a server that goes on without a first token. */
const NO_FIRST_TOKEN = new RegExp(
  `"Cannot create the first token, .* plant-store token delete first-start .*"reason":"${LATE}"`,
);

/** What a server logs that finds the clock of a test gone on. */
const CLOCK_PASSED = /^.*"message":"Event loop blocked".*\n/m;

const WAITS_FOR_LOCK = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
const WAITS_FOR_STANDBY = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

const SERVE = ["serve", "--port", "0"];

const NEVER = new Promise(() => {});

describe.skipIf(skipsCluster())("PostgreSQL that does not respond in time", () => {
  let database: string;
  const cluster = withCluster();
  beforeEach(async () => void (database = await cluster().emptyDatabase()));
  beforeEach(async () => expect(await plantStore(["migrate"])).toMatchObject({ exitCode: 0 }));

  const plantStore = (args: readonly string[]) => runCommand(args, { DATABASE_URL: database });

  /**
   * Waits until a query has found so many rows, or a promise is settled: a connection that waits ends
   * that after a while, and begins again.
   */
  async function untilFound(query: string, count = 1, orEnd: Promise<unknown> = NEVER) {
    const found = new Set<string>();
    while (found.size < count && Bun.peek.status(orEnd) === "pending") {
      for (const row of await cluster().run(query)) found.add(JSON.stringify(row));
      await Bun.sleep(5);
    }
  }

  test("ends commands on tokens, and the start of a server, in one line", async () => {
    using clock = shortenDeadlines();
    await using rival = cluster().connect();
    await rival.unsafe("BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE").simple();

    const commands = LATE_COMMANDS.map(async ([args, action, advice]) => {
      const { stderr, ...ended } = await plantStore(args.split(" "));
      expect(ended).toEqual({ exitCode: 1, stdout: "" });
      expect(stderr.replace(CLOCK_PASSED, "")).toMatch(lateLine(action, advice));
    });

    // One that cannot connect in time does not come to wait for the lock.
    const refused = Promise.all(commands);
    await untilFound(WAITS_FOR_LOCK, commands.length, refused);
    clock.pass(DEADLINE_MS);
    await refused;
    await rival.unsafe("ROLLBACK");
  });

  /** To the end of the scope, commits wait for a standby that is not there. */
  async function withoutStandby(): Promise<AsyncDisposable> {
    await cluster().set("synchronous_standby_names", "nobody");
    return { [Symbol.asyncDispose]: () => cluster().set("synchronous_standby_names", "") };
  }

  /** Starts a command in this process, and stops it once it waits. */
  async function stopAtWait(args: readonly string[], wait: string) {
    const stop = new AbortController();
    const started = runCommand(args, { DATABASE_URL: database }, { stop: stop.signal });
    await untilFound(wait);
    stop.abort();
    return await started;
  }

  test("ends the start of a server at a signal, while it waits for the tokens", async () => {
    await using rival = cluster().connect();
    await rival.unsafe("BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE").simple();
    const { exitCode, stderr } = await stopAtWait(SERVE, WAITS_FOR_LOCK);
    expect([exitCode, stderr]).toEqual([
      0,
      expect.stringMatching(/^\{[^\n]*"Stopping: [^\n]*\n[^\n]*"Stopped"[^\n]*\n$/),
    ]);

    await rival.unsafe("ROLLBACK");
  });

  test("ends a server at a signal, while it waits for its first token to be stored", async () => {
    await using _ = await withoutStandby();
    const { exitCode, stderr } = await stopAtWait(SERVE, WAITS_FOR_STANDBY);
    expect(exitCode).toBe(0);
    expect(stderr).not.toMatch(NO_FIRST_TOKEN);
  });

  test("ends a restore at a signal, while it waits for its tables", async () => {
    using backup = await databaseFixture([fern()]);
    database = (await cluster().newDatabase()).url;
    await using _ = await withoutStandby();
    expect(await stopAtWait(["restore", backup.path], WAITS_FOR_STANDBY)).toEqual({
      exitCode: 1,
      stdout: "",
      stderr: "Stopped: nothing was restored\n",
    });
  });

  test("lets a server run without a first token, and lets a token be deleted whose secret was not shown", async () => {
    using clock = shortenDeadlines();
    await cluster().set("synchronous_standby_names", "nobody");
    const stop = new AbortController();
    let log = "";
    const io = { stop: stop.signal, stderr: (text: string) => void (log += text) };
    const serving = runCommand(SERVE, { DATABASE_URL: database }, io);
    const creating = plantStore(["token", "create", "new"]);

    // One waits for the standby, and the other one for the first's commit.
    await untilFound(WAITS_FOR_LOCK);
    clock.pass(DEADLINE_MS);
    while (!NO_FIRST_TOKEN.test(log)) await Bun.sleep(5);

    const [, url = ""] = /listens on (http:[^\s",]+)/.exec(log) ?? [];
    expect((await post(url)).status).toBe(401);

    const stderr = expect.stringMatching(lateLine('create token "new"', SECRET_NOT_SHOWN));
    expect(await creating).toEqual({ exitCode: 1, stdout: "", stderr });

    await cluster().set("synchronous_standby_names", "");
    // Its commit went on waiting, and was there after all.
    await untilFound("SELECT FROM tokens");
    await Promise.all(
      ["new", "first-start"].map((name) => plantStore(["token", "delete", name, "--yes"])),
    );

    expect(await plantStore(["token", "list", "--json"])).toMatchObject({ stdout: "[]\n" });

    const { stdout } = await plantStore(["token", "create", "new"]);
    await untilTokenIs(200, url, stdout.trim());
    stop.abort();
    expect((await serving).exitCode).toBe(0);
  });

  test("ends serve if it cannot make the schema, and migrate only at a signal", async () => {
    using _ = shortenDeadlines();
    await cluster().emptyDatabase();
    {
      await using _ = await withoutStandby();
      const stderr = "Stopped: the schema may or may not be up to date\n";
      expect(await stopAtWait(["migrate"], WAITS_FOR_STANDBY)).toEqual({
        exitCode: 1,
        stdout: "",
        stderr,
      });
      // On a busy machine, a connection that asks for the reason comes too late.
      let refused = await plantStore(SERVE);
      while (refused.stderr.endsWith("(DEADLINE)\n")) refused = await plantStore(SERVE);
      expect(refused).toEqual({
        exitCode: 1,
        stdout: "",
        stderr: expect.stringMatching(
          /^Cannot open database "postgres": commits wait for a synchronous standby: .* \(NO_STANDBY\)\n$/,
        ),
      });
    }

    while ((await cluster().run(WAITS_FOR_STANDBY)).length > 0) await Bun.sleep(5);
    expect(await plantStore(["migrate"])).toMatchObject({
      stderr: "Nothing to do: the schema is up to date\n",
    });
  });

  const MAY_NOT_MIGRATE = {
    exitCode: 2,
    stdout: "",
    stderr:
      'Cannot open database "postgres": the user may not create or alter tables: run plant-store migrate once, with the URL of a user who may\n',
  };

  test("lets serve --check say in one line that a role may not create tables", async () => {
    await cluster().emptyDatabase();
    await cluster().run("CREATE ROLE visitor LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    database = cluster().url("postgres", "visitor");

    expect(await plantStore(["serve", "--check"])).toEqual(MAY_NOT_MIGRATE);
  });

  test("lets serve --check say in one line that a role does not own the tables to alter", async () => {
    await cluster().run(
      "CREATE ROLE tenant LOGIN",
      "GRANT CREATE ON SCHEMA public TO tenant",
      "GRANT ALL ON ALL TABLES IN SCHEMA public TO tenant",
      "DELETE FROM plant_store_migrations",
    );
    database = cluster().url("postgres", "tenant");

    expect(await plantStore(["serve", "--check"])).toEqual(MAY_NOT_MIGRATE);
  });
});

/** Timers from this length on, in milliseconds, are for deadlines. */
const LONG_MS = 5_000;

/**
 * For tests of what happens at a deadline of seconds, to the end of the scope. A timer that long
 * ends after a tenth of its time, and `performance.now()` moves on by what the test says.
 */
function shortenDeadlines() {
  const { setTimeout } = globalThis;
  const now = performance.now.bind(performance);
  const sooner = (run: () => void, ms = 0) => setTimeout(run, ms > LONG_MS ? ms / 10 : ms);
  let passedMs = 0;
  const spies = [
    spyOn(globalThis, "setTimeout").mockImplementation(sooner as unknown as typeof setTimeout),
    spyOn(performance, "now").mockImplementation(() => now() + passedMs),
  ];

  return {
    /** Lets time pass at once, in milliseconds. */
    pass: (ms: number) => void (passedMs += ms),
    [Symbol.dispose]: () => spies.forEach((spy) => spy.mockRestore()),
  };
}
