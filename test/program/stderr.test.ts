import { expect, setDefaultTimeout, test } from "bun:test";
import { post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { shell } from "../support/shell.ts";
import { emptyDirectory, freePort, start, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const ENV = { AUTH_TOKENS: TOKEN, ACCESS_LOG: "on" };

test("a server whose log is on a full disk serves on, and SIGTERM exits 0", async () => {
  // A server without a log cannot tell its own.
  const port = freePort();
  const program = shell('exec "$@" 2> /dev/full');
  await using server = start({ program, args: ["--port", String(port)], env: ENV });
  expect(await firstStatus(`http://127.0.0.1:${port}`)).toBe(200);
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
});

test("a server whose log nobody reads any more serves on, and SIGTERM exits 0", async () => {
  using directory = emptyDirectory();
  const port = freePort();
  await using child = Bun.spawn([...executable(), "--port", String(port)], {
    cwd: directory.path,
    env: { PATH: process.env["PATH"] ?? "", ...ENV },
    stdout: "ignore",
    stderr: "pipe",
  });
  await child.stderr.cancel();
  expect(await firstStatus(`http://127.0.0.1:${port}`)).toBe(200);
  child.kill("SIGTERM");
  expect(await child.exited).toBe(0);
});

/** The status of the first response to a plant. The test's own time limit ends it. */
async function firstStatus(url: string): Promise<number> {
  for (;;) {
    const response = await post(url).catch(() => undefined);
    if (response !== undefined) return response.status;
    await Bun.sleep(20);
  }
}
