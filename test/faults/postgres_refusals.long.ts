import { afterAll, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { post, TOKEN, untilTokenIs } from "../support/client.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../support/postgres.ts";
import { emptyDirectory, runToEnd, startServer, LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";
import { expectLateCommands, lateLine, NO_FIRST_TOKEN, SECRET_NOT_SHOWN } from "./postgres_refusals.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster())("PostgreSQL that does not respond in ten seconds", () => {
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

  test("ends commands on tokens, and the start of a server, in one line", async () => {
    using directory = emptyDirectory();
    await using rival = cluster.connect();
    await rival.unsafe("BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE").simple();
    const env = { DATABASE_URL: database, AUTH_TOKENS: TOKEN };
    await expectLateCommands((args) => runToEnd({ cwd: directory.path, args, env }));
    await rival.unsafe("ROLLBACK");
  });

  test("lets a server go on without a first token, and a token without a secret can be deleted", async () => {
    using directory = emptyDirectory();
    await cluster.set("synchronous_standby_names", "nobody");
    const creating = plantStore(["token", "create", "new"]);
    await using server = await startServer({ cwd: directory.path, env: { DATABASE_URL: database } });
    await server.stderr.until(NO_FIRST_TOKEN);
    expect((await post(server.url)).status).toBe(401);
    const stderr = expect.stringMatching(lateLine('create token "new"', SECRET_NOT_SHOWN));
    expect(await creating).toEqual({ exitCode: 1, stdout: "", stderr });
    await cluster.set("synchronous_standby_names", "");
    // Its commit went on waiting, and was there after all; of the two one waited for the other's.
    while ((await cluster.run("SELECT FROM tokens")).length === 0) await Bun.sleep(5);
    await Promise.all(["new", "first-start"].map((name) => plantStore(["token", "delete", name])));
    expect(await plantStore(["token", "list", "--json"])).toMatchObject({ stdout: "[]\n" });
    const { stdout } = await plantStore(["token", "create", "new"]);
    await untilTokenIs(200, server.url, stdout.trim());
    server.child.kill("SIGTERM");
    expect(await server.child.exited).toBe(0);
  });
});
