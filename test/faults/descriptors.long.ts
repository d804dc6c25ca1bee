import { expect, setDefaultTimeout, test } from "bun:test";
import { TOKEN } from "../support/client.ts";
import { connect, type Connection, getBytes, newPlants, postBytes } from "../support/load.ts";
import { shell } from "../support/shell.ts";
import { emptyDirectory, startServer, LONG_TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** Few, so that some clients take them all. */
const FEW = shell('ulimit -n 128 && exec "$@"');

/** Clients that send plants without a pause, each on one connection; `lost` counts connections that ended. */
async function startBusyClients(url: string, count: number, next = newPlants("descriptors")) {
  const progress = { stored: 0, lost: 0, isOver: false };
  const run = async (connection: Connection) => {
    while (!progress.isOver && !connection.isClosed()) {
      const response = await connection.request(postBytes(next()));
      if (response?.status === 200) progress.stored++;
    }
    if (!progress.isOver) progress.lost++;
    connection.close();
  };
  const connections = await Promise.all(Array.from({ length: count }, () => connect(url)));
  const clients = connections.map(run);
  return {
    progress,
    /** Resolves when so many more plants are stored, or a connection is lost. The test's own time limit ends it. */
    async more(plants: number): Promise<void> {
      const goal = progress.stored + plants;
      while (progress.stored < goal && progress.lost === 0) await Bun.sleep(5);
    },
    /** Does not wait for those that the server never accepted. */
    stop(): void {
      progress.isOver = true;
      connections.forEach((connection) => connection.close());
      void Promise.all(clients);
    },
  };
}

test("out of file descriptors, the server says so once, goes on serving its open connections, and recovers", async () => {
  using directory = emptyDirectory();
  await using server = await startServer({ program: FEW, cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
  const busy = await startBusyClients(server.url, 8);
  await busy.more(100);
  // The system takes them all; the server has no descriptor for some of them.
  const silent = await Promise.all(Array.from({ length: 150 }, () => connect(server.url)));
  await server.stderr.until(/Out of file descriptors/);
  await busy.more(5_000);
  expect(busy.progress.lost).toBe(0);

  for (const connection of silent) connection.close();
  // The test's own time limit ends it.
  while (!(await isAlive(server.url))) await Bun.sleep(50);
  await busy.more(100);
  expect(busy.progress.lost).toBe(0);
  busy.stop();
  expect(server.stderr.text().match(/Out of file descriptors/g)).toHaveLength(1);
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
});

test("more clients than file descriptors: no open connection is lost", async () => {
  using directory = emptyDirectory();
  await using server = await startServer({ program: FEW, cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
  const busy = await startBusyClients(server.url, 150);
  await busy.more(20_000);
  expect(busy.progress.lost).toBe(0);
  busy.stop();
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
});

// It begins a second after the start, and Bun ends a process that has none for a new Worker.
test("a server that listens has the file descriptors that its check for damage needs", async () => {
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
