import { expect, setDefaultTimeout, test } from "bun:test";
import { post, TOKEN } from "../support/client.ts";
import { shell } from "../support/shell.ts";
import { freePort, start, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.each([
  ["is on a full disk", 'exec "$@" 2> /dev/full'],
  ["nobody reads any more", 'exec "$@" 2> >(exec true)'],
])("a server whose log %s serves on, and SIGTERM exits 0", async (_what, script) => {
  // A server without a log cannot tell its port.
  const port = freePort();
  const env = { AUTH_TOKENS: TOKEN, ACCESS_LOG: "on" };
  await using server = start({ program: shell(script, "bash"), args: ["--port", String(port)], env });
  let response: Response | undefined;
  while (response === undefined) {
    response = await post(`http://127.0.0.1:${port}`).catch(() => undefined);
    await Bun.sleep(20);
  }
  expect(response.status).toBe(200);
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
});
