import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { connect, type ConnectionOptions } from "node:tls";
import { TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { connect as connectTo, type Connection, postBytes } from "../support/load.ts";
import { emptyDirectory, ROOT, start, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { underNohup } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A certificate and its key in files of their own, which can be changed, and the environment that names them. */
function tlsFiles(cwd: string) {
  const [cert, key] = [join(cwd, "server.crt"), join(cwd, "server.key")];
  const use = (name: "localhost" | "renewed") => {
    copyFileSync(join(ROOT, `test/support/tls/${name}.crt`), cert);
    copyFileSync(join(ROOT, `test/support/tls/${name}.key`), key);
  };
  use("localhost");
  return { use, cert, env: { AUTH_TOKENS: TOKEN, TLS_CERT_FILE: cert, TLS_KEY_FILE: key } };
}

async function tlsServer(cwd: string, program: readonly string[] = executable()) {
  const { env, ...files } = tlsFiles(cwd);
  return { ...(await startServer({ program, cwd, env })), ...files };
}

/** The name in the certificate that a new connection gets, or the reason why there is no connection. */
function handshake(url: string, options: ConnectionOptions = {}): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect({ host: "127.0.0.1", port: Number(new URL(url).port), rejectUnauthorized: false, ...options });
  socket.on("secureConnect", () => {
    resolve(String(socket.getPeerCertificate().subject.CN));
    socket.end();
  });
  socket.on("error", ({ message }) => resolve(message));
  return promise;
}

/** Clients that send plants without a pause: half of them on a new connection each, half on one until it is closed. */
function startClients(url: string, count: number) {
  const failures: string[] = [];
  const progress = { responses: 0, stopped: false };

  async function isLast(connection: Connection): Promise<boolean> {
    const response = await connection.request(postBytes({ id: 1n, name: "Fern" }));
    if (response?.status === 200) progress.responses++;
    else failures.push(response === undefined ? "none" : String(response.status));
    return response?.headers.get("connection") === "close" || response === undefined;
  }

  async function run(requests: number): Promise<void> {
    while (!progress.stopped) {
      const connection = await connectTo(url);
      for (let sent = 0; sent < requests && !progress.stopped; sent++) if (await isLast(connection)) break;
      connection.close();
    }
  }

  const running = Array.from({ length: count }, (_, client) => run(client % 2 === 0 ? 1 : Infinity));
  return {
    /** Resolves when so many more have their response. */
    async more(count: number): Promise<void> {
      const goal = progress.responses + count;
      while (progress.responses < goal) await Bun.sleep(1);
    },
    /** What was not answered 200. */
    async stop(): Promise<string[]> {
      progress.stopped = true;
      await Promise.all(running);
      return failures;
    },
  };
}

test("SIGHUP changes the certificate under load, and no connection is lost", async () => {
  using directory = emptyDirectory();
  await using server = await tlsServer(directory.path);
  const clients = startClients(server.url, 16);
  await clients.more(100);
  for (const name of ["renewed", "localhost", "renewed", "localhost", "renewed"] as const) {
    server.use(name);
    const before = server.stderr.text().length;
    server.child.kill("SIGHUP");
    while (!server.stderr.text().includes("Certificate read again", before)) await Bun.sleep(1);
    expect(await handshake(server.url)).toBe(name);
    await clients.more(200);
  }
  expect(await clients.stop()).toEqual([]);
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
  expect(server.stderr.text()).toMatch(/"Certificate read again".*"expires":"2126-10-2\d/);
});

/** SIGHUP makes a server use the files of another certificate. */
async function expectRenewal(server: Awaited<ReturnType<typeof tlsServer>>): Promise<void> {
  server.use("renewed");
  server.child.kill("SIGHUP");
  await server.stderr.until(/Certificate read again/);
  expect(await handshake(server.url)).toBe("renewed");
}

test("SIGHUP changes the certificate under nohup, too", async () => {
  using directory = emptyDirectory();
  await using server = await tlsServer(directory.path, underNohup());
  await expectRenewal(server);
});

test("SIGHUP while the server starts does not stop it", async () => {
  using directory = emptyDirectory();
  const { env, use } = tlsFiles(directory.path);
  const tokens = join(directory.path, "tokens");
  expect(Bun.spawnSync(["mkfifo", tokens]).exitCode).toBe(0);
  const options = { args: ["--port", "0"], cwd: directory.path, env: { ...env, AUTH_TOKENS_FILE: tokens } };
  await using server = start(options);
  // A pipe opens when its reader is there: the server reads its tokens, and waits for the end of them.
  const pipe = await open(tokens, "w");
  server.child.kill("SIGHUP");
  await pipe.close();
  const [, url = ""] = await server.stderr.until(/listens on (https:\/\/[^\s",]+)/);
  use("renewed");
  server.child.kill("SIGHUP");
  await server.stderr.until(/Certificate read again/);
  expect(await handshake(url)).toBe("renewed");
});

test("SIGHUP with a bad certificate keeps the one before, and says why", async () => {
  using directory = emptyDirectory();
  await using server = await tlsServer(directory.path);
  writeFileSync(server.cert, "no PEM");
  server.child.kill("SIGHUP");
  const [line] = await server.stderr.until(/.*Certificate not read again: the one before stays.*\n/);
  expect(JSON.parse(line)).toMatchObject({ level: "ERROR", reason: expect.stringContaining("server.crt") });
  expect(await handshake(server.url)).toBe("localhost");
  await expectRenewal(server);
});

test("only cipher suites with forward secrecy are accepted", async () => {
  using directory = emptyDirectory();
  await using server = await tlsServer(directory.path);
  const suite = (ciphers: string) => handshake(server.url, { ciphers, maxVersion: "TLSv1.2" });
  for (const ciphers of ["AES128-GCM-SHA256", "AES256-SHA", "ECDHE-ECDSA-AES128-SHA"]) {
    expect({ ciphers, seen: await suite(ciphers) }).toEqual({
      ciphers,
      seen: expect.stringContaining("HANDSHAKE_FAILURE"),
    });
  }
  expect(await suite("ECDHE-ECDSA-AES128-GCM-SHA256")).toBe("localhost");
  expect(await handshake(server.url, { minVersion: "TLSv1.3" })).toBe("localhost");
});
