import { Database } from "bun:sqlite";
import { join } from "node:path";
import { expect, setDefaultTimeout, test } from "bun:test";
import { post, untilTokenIs } from "../support/client.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.concurrent("a revoked token ends on a running server, also while no use of a token can be written", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  const { stdout } = await runToEnd({ cwd, args: ["token", "create", "greenhouse"] });
  const token = stdout.trim();
  refuseUses(join(cwd, "plants.db"));
  await using server = await startServer({ cwd });
  expect((await post(server.url, undefined, { token })).status).toBe(200);
  await server.stderr.until(/Uses of tokens not written/);
  expect((await runToEnd({ cwd, args: ["token", "revoke", "greenhouse"] })).exitCode).toBe(0);
  await untilTokenIs(401, server.url, token);
  await server.stderr.until(/"greenhouse\\?" is revoked/);
});

test.concurrent("the last use of a token is not lost when the server stops right behind it", async () => {
  using directory = emptyDirectory();
  const cwd = directory.path;
  const { stdout } = await runToEnd({ cwd, args: ["token", "create", "greenhouse"] });
  await using server = await startServer({ cwd });
  expect((await post(server.url, undefined, { token: stdout.trim() })).status).toBe(200);
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
  const list = await runToEnd({ cwd, args: ["token", "list", "--json"] });
  expect(JSON.parse(list.stdout)).toMatchObject([
    { name: "greenhouse", lastUsed: expect.stringMatching(/:00\.000Z$/) },
  ]);
});

/** From now on every write of a use fails, and everything else goes on. */
function refuseUses(path: string): void {
  using database = new Database(path);
  database.run(
    "CREATE TRIGGER refuse_uses BEFORE UPDATE OF last_used_at ON tokens BEGIN SELECT RAISE(ABORT, 'no uses'); END",
  );
}
