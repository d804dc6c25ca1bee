import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, readdirSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { connect, type ConnectionOptions } from "node:tls";

import { sendHalf } from "../faults/health.ts";
import { post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { connect as connectTo, type Connection, postBytes, verdictOf } from "../support/load.ts";
import { fern, membersOf, moss } from "../support/plants.ts";
import {
  emptyDirectory,
  ROOT,
  runToEnd,
  start,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { underNohup } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Certificates for these tests, signed by themselves. */
const TLS = join(ROOT, "test/support/tls");

/**
 * A certificate and its key in files of their own, which can be changed, and the environment that
 * names them.
 */
function tlsFiles() {
  const directory = emptyDirectory();
  const cert = directory.at("server.crt");
  const key = directory.at("server.key");

  const use = (name: "localhost" | "renewed") => {
    copyFileSync(`${TLS}/${name}.crt`, cert);
    copyFileSync(`${TLS}/${name}.key`, key);
  };

  use("localhost");
  return {
    ...directory,
    use,
    cert,
    env: { AUTH_TOKENS: TOKEN, TLS_CERT_FILE: cert, TLS_KEY_FILE: key },
  };
}

async function tlsServer(program: readonly string[] = executable()) {
  await using stack = new AsyncDisposableStack();
  const { env, use, cert } = stack.use(tlsFiles());
  const server = stack.use(await startServer({ program, env }));
  const all = stack.move();
  return { ...server, use, cert, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

/** The name in the certificate that a new connection gets, or the reason why there is no connection. */
function handshake(url: string, options: ConnectionOptions = {}): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect({
    host: "127.0.0.1",
    port: Number(new URL(url).port),
    rejectUnauthorized: false,
    ...options,
  });
  socket.on("secureConnect", () => {
    resolve(String(socket.getPeerCertificate().subject.CN));
    socket.end();
  });
  socket.on("error", ({ message }) => resolve(message));

  return promise;
}

test("with TLS_CERT_FILE and TLS_KEY_FILE the server speaks HTTPS, under a host of any length", async () => {
  await using server = await tlsServer();
  expect(server.url).toStartWith("https://127.0.0.1:");

  for (const host of [undefined, "a", "ab", "plants.example.org"]) {
    const response = await post(server.url, undefined, {
      tls: { ca: Bun.file(server.cert) },
      headers: { ...(host && { host }) },
    });
    expect([host, response.status, await response.text()]).toEqual([
      host,
      200,
      `{${membersOf(fern())}}`,
    ]);
  }
});

test("a TLS_KEY_FILE that is the key itself, or that of another certificate, stops the start with one line and exit code 2, and leaves no file", async () => {
  using directory = emptyDirectory();
  const other = `${TLS}/renewed.key`;

  for (const [cert, key, says] of [
    [
      `${TLS}/localhost.crt`,
      "-----BEGIN PRIVATE KEY-----",
      "Cannot use TLS_KEY_FILE: no such file or directory; its value is not shown, because it may be a secret",
    ],
    [
      `${TLS}/localhost.crt`,
      other,
      `Cannot use TLS_CERT_FILE "${TLS}/localhost.crt" with TLS_KEY_FILE "${other}": `,
    ],
  ] as const) {
    const env = { AUTH_TOKENS: TOKEN, TLS_CERT_FILE: cert, TLS_KEY_FILE: key };
    const run = await runToEnd({ args: ["--port", "0"], env, cwd: directory.path });
    const stderr = expect.stringMatching(new RegExp(`^${RegExp.escape(says)}[^\n]*\n$`));
    expect(run).toEqual({ exitCode: 2, stdout: "", stderr });
    expect(readdirSync(directory.path)).toEqual([]);
  }
});

test("SIGHUP changes the certificate under load: requests in flight get their responses, and clients that retry lose none", async () => {
  await using server = await tlsServer();
  const plant = postBytes(fern());
  const seen = new Set<string>();
  const progress = { responses: 0, isOver: false };

  /** Sends without a pause, and begins anew whenever its connection has ended. */
  const client = async () => {
    for (let connection: Connection | undefined; !progress.isOver; progress.responses++) {
      connection =
        connection?.isClosed() === false
          ? connection
          : await connectTo(server.url).catch(() => undefined);
      const response = await connection?.request(plant);
      if (response !== undefined) seen.add(verdictOf(response));
    }
  };

  const clients = Array.from({ length: 16 }, client);
  const inFlight = await sendHalf(server.url);

  for (const name of ["renewed", "localhost", "renewed"] as const) {
    server.use(name);
    const before = server.stderr.text().length;
    server.child.kill("SIGHUP");
    while (!server.stderr.text().includes("Certificate reloaded", before)) await Bun.sleep(1);
    expect(await handshake(server.url)).toBe(name);
    const goal = progress.responses + 200;
    while (progress.responses < goal) await Bun.sleep(1);
  }

  const response = await inFlight.request(postBytes(moss({ id: 2n })).slice(-5));
  expect([response?.status, response?.headers.get("connection")]).toEqual([200, "close"]);

  progress.isOver = true;
  await Promise.all(clients);
  expect([...seen]).toEqual(["200"]);
  expect(await server.stop()).toBe(0);
  expect(server.stderr.text()).toMatch(/"Certificate reloaded".*"expires":"2126-10-2\d/);
});

/** SIGHUP makes a server use the files of another certificate. */
async function expectRenewal({
  use,
  child,
  stderr,
  url,
}: Omit<Awaited<ReturnType<typeof tlsServer>>, "cert">) {
  use("renewed");
  child.kill("SIGHUP");
  await stderr.until(/Certificate reloaded/);
  expect(await handshake(url)).toBe("renewed");
}

test("after SIGHUP only a request that came before it has its connection closed", async () => {
  await using server = await tlsServer();
  const before = await sendHalf(server.url);
  await expectRenewal(server);

  const after = await connectTo(server.url);
  const response = await after.request(postBytes(fern()));
  expect([response?.status, response?.headers.get("connection")]).toEqual([200, null]);

  const last = await before.request(postBytes(moss({ id: 2n })).slice(-5));
  expect([last?.status, last?.headers.get("connection")]).toEqual([200, "close"]);
});

test("SIGHUP while the server starts does not stop it", async () => {
  using files = tlsFiles();
  const tokens = files.at("tokens");
  expect(Bun.spawnSync(["mkfifo", tokens]).exitCode).toBe(0);

  await using server = start({
    args: ["--port", "0"],
    env: { ...files.env, AUTH_TOKENS_FILE: tokens },
  });

  // A pipe opens when its reader is there: the server reads its tokens, and waits for the end of
  // them.
  const pipe = await open(tokens, "w");
  server.child.kill("SIGHUP");
  await pipe.writeFile(TOKEN);
  await pipe.close();

  const [, url = ""] = await server.stderr.until(/listens on (https:\/\/[^\s",]+)/);
  await expectRenewal({ ...server, url, use: files.use });
});

test("SIGHUP with a bad certificate keeps the current one and says why; a good one replaces it, even under nohup", async () => {
  await using server = await tlsServer(underNohup());
  writeFileSync(server.cert, "no PEM");
  server.child.kill("SIGHUP");
  const [line] = await server.stderr.until(
    /.*Certificate reload failed; keeping the current one.*\n/,
  );
  expect(JSON.parse(line)).toMatchObject({
    level: "ERROR",
    reason: expect.stringContaining("server.crt"),
  });
  expect(await handshake(server.url)).toBe("localhost");

  await expectRenewal(server);
});

test("only cipher suites with forward secrecy are accepted", async () => {
  await using server = await tlsServer();
  const suite = (ciphers: string) => handshake(server.url, { ciphers, maxVersion: "TLSv1.2" });
  for (const ciphers of ["AES128-GCM-SHA256", "AES256-SHA", "ECDHE-ECDSA-AES128-SHA"]) {
    expect(await suite(ciphers), ciphers).toContain("HANDSHAKE_FAILURE");
  }
  expect(await suite("ECDHE-ECDSA-AES128-GCM-SHA256")).toBe("localhost");
  expect(await handshake(server.url, { minVersion: "TLSv1.3" })).toBe("localhost");
});
