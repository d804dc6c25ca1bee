import { expect, setDefaultTimeout, test } from "bun:test";
import { TOKEN } from "../support/client.ts";
import { connect, getBytes } from "../support/load.ts";
import { shell } from "../support/shell.ts";
import { emptyDirectory, startServer, LONG_TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test.concurrent(
  "out of file descriptors, the server says so once, refuses whom it cannot serve, and recovers",
  async () => {
    using directory = emptyDirectory();
    const program = shell('ulimit -n 64 && exec "$@"');
    await using server = await startServer({ program, cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
    // The system takes them all; the server has no descriptor for most of them.
    const held = await Promise.all(Array.from({ length: 100 }, () => connect(server.url)));
    await server.stderr.until(/Out of file descriptors: new connections are refused until some are free/);
    await Promise.any(held.map(({ closed }) => closed));
    await expect(connect(server.url)).rejects.toThrow();

    for (const connection of held) connection.close();
    // The test's own time limit ends it.
    while (!(await isAlive(server.url))) await Bun.sleep(50);
    expect(server.stderr.text().match(/Out of file descriptors/g)).toHaveLength(1);
    server.child.kill("SIGTERM");
    expect(await server.child.exited).toBe(0);
  },
);

// It begins a second after the start, and Bun ends a process that has none for a new Worker.
test.concurrent("a server that listens has the file descriptors that its check for damage needs", async () => {
  using directory = emptyDirectory();
  await using server = await startWithFewest(directory.path);
  await server.stderr.until(/Integrity check (passed|not finished)/);
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
});

/** The server under the lowest limit with which it starts. */
async function startWithFewest(cwd: string): Promise<Awaited<ReturnType<typeof startServer>>> {
  for (let limit = 10; ; limit++) {
    const program = shell(`ulimit -n ${limit} && exec "$@"`);
    const server = await startServer({ program, cwd, env: { AUTH_TOKENS: TOKEN } }).catch(() => undefined);
    if (server !== undefined) return server;
  }
}

async function isAlive(url: string): Promise<boolean> {
  const connection = await connect(url).catch(() => undefined);
  const response = await connection?.request(getBytes("/livez"));
  connection?.close();
  return response?.status === 200;
}
