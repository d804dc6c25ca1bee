import { expect, setDefaultTimeout, test } from "bun:test";
import { TOKEN } from "../support/client.ts";
import { connect, newPlants, postBytes, verdictOf } from "../support/load.ts";
import { emptyDirectory, startServer, LONG_TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test("requests that a stopped process kept waiting are served, and the log blames nobody else", async () => {
  using directory = emptyDirectory();
  const env = { AUTH_TOKENS: TOKEN, REQUEST_TIMEOUT_MS: "1500" };
  await using server = await startServer({ cwd: directory.path, env });
  const next = newPlants("event loop");
  const clients = await Promise.all(Array.from({ length: 32 }, () => connect(server.url)));
  const state = { goesOn: true };
  const seen = new Set<string>();
  const sending = clients.map(async (client) => {
    while (state.goesOn) {
      const response = await client.request(postBytes(next()));
      seen.add(response === undefined ? "none" : verdictOf(response));
    }
  });
  // A few times make sure that something is in flight at that moment.
  for (let times = 0; times < 2; times++) {
    server.child.kill("SIGSTOP");
    await Bun.sleep(2_500);
    server.child.kill("SIGCONT");
    await Bun.sleep(1_200);
  }
  await server.stderr.until(/"Event loop blocked".*"delayMs":\d+/);
  state.goesOn = false;
  await Promise.all(sending);
  expect([...seen]).toEqual(["200"]);
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
  expect(server.stderr.text()).not.toContain("Storage unavailable");
});
