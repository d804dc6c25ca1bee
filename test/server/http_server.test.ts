import { expect, spyOn, test } from "bun:test";
import { copyFileSync, rmSync, writeFileSync } from "node:fs";
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";

import { ConfigError } from "../../src/errors.ts";
import { HttpServer } from "../../src/server/http_server.ts";
import { parseConfig } from "../../src/settings/settings.ts";
import { connect, getBytes, postBytes } from "../support/load.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { emptyDirectory, ROOT } from "../support/program.ts";

/** No service stops here. */
const { signal: NEVER } = new AbortController();

/**
 * A server of HTTPS that echoes bodies behind the client's address, with a certificate in files of
 * its own.
 */
async function echoServer(directory: string) {
  const cert = join(directory, "server.crt");
  const key = join(directory, "server.key");
  for (const path of [cert, key])
    copyFileSync(join(ROOT, `test/support/tls/localhost${path.slice(-4)}`), path);

  const server = new HttpServer(
    parseConfig({ TLS_CERT_FILE: cert, TLS_KEY_FILE: key }, { port: "0" }),
    NEVER,
  );
  const arrived = Promise.withResolvers<void>();

  await server.loadCertificate();
  const address = server.listen({
    async fetch(request) {
      arrived.resolve();
      return new Response(`${server.clientAddress(request)} sent ${await request.text()}`);
    },
    error: () => new Response(null, { status: 500 }),
  });

  return { server, address, arrived: arrived.promise, cert, key };
}

/** Such a server, and a connection on which it has half of a body. */
async function halfSent(directory: string) {
  const { server, address, arrived } = await echoServer(directory);
  const connection = await connect(address);
  const bytes = postBytes(fern());
  connection.send(bytes.slice(0, -5));
  await arrived;
  return { server, address, connection, rest: bytes.slice(-5) };
}

test.each([1, 2])(
  "after %d reloads of the certificate, stop() waits for a request that came before them",
  async (reloads) => {
    using directory = emptyDirectory();
    const { server, address, connection, rest } = await halfSent(directory.path);

    for (let done = 0; done < reloads; done++) {
      await server.reloadCertificate();

      const other = await connect(address);
      expect(await other.request(getBytes("/"))).toMatchObject({
        status: 200,
        body: "127.0.0.1 sent ",
      });

      other.close();
    }

    const order: string[] = [];
    const stopped = server.stop(60_000).then(() => order.push("stopped"));
    await expect(connect(address)).rejects.toThrow();

    order.push("rest sent");
    expect(await connection.request(rest)).toMatchObject({
      status: 200,
      body: `127.0.0.1 sent ${jsonOf(fern())}`,
    });

    await stopped;
    expect(order).toEqual(["rest sent", "stopped"]);
  },
);

test("after a reload, stop() closes an older connection when the time is over", async () => {
  using directory = emptyDirectory();
  const { server, connection } = await halfSent(directory.path);
  await server.reloadCertificate();
  await server.stop(1);
  await connection.closed;
});

test("a certificate that is loaded while the server stops does not make it listen again", async () => {
  using directory = emptyDirectory();
  const { server, address, cert } = await echoServer(directory.path);
  rmSync(cert);
  expect(Bun.spawnSync(["mkfifo", cert]).exitCode).toBe(0);

  const reloaded = server.reloadCertificate();
  // A pipe opens when its reader is there.
  const pipe = await open(cert, "w");
  await server.stop(60_000);
  await pipe.writeFile(await Bun.file(join(ROOT, "test/support/tls/localhost.crt")).bytes());
  await pipe.close();

  expect(await reloaded).toBeUndefined();
  await expect(connect(address)).rejects.toThrow();
});

test.each(["cert", "key"] as const)(
  "a %s file that is empty, as in the middle of a renewal, keeps the current certificate",
  async (file) => {
    using directory = emptyDirectory();
    const { server, address, [file]: path } = await echoServer(directory.path);
    writeFileSync(path, "");

    await expect(server.reloadCertificate()).rejects.toThrow(ConfigError);

    const connection = await connect(address);
    expect(await connection.request(getBytes("/"))).toMatchObject({ status: 200 });

    connection.close();
    await server.stop(60_000);
  },
);

test("a certificate that is a pipe without a writer keeps no thread from other files", async () => {
  using directory = emptyDirectory();
  const { server, cert } = await echoServer(directory.path);
  const pair = await Bun.file(cert).text();

  rmSync(cert);
  expect(Bun.spawnSync(["mkfifo", cert]).exitCode).toBe(0);

  // More than there are threads.
  const reloads = Array.from({ length: navigator.hardwareConcurrency + 1 }, () =>
    server.reloadCertificate().catch((error) => error),
  );
  expect(await readFile(join(ROOT, "test/support/tls/localhost.crt"), "utf8")).toBe(pair);

  // A writer that writes nothing ends them all.
  await (await open(cert, "w")).close();
  for (const reload of reloads) expect(await reload).toBeInstanceOf(ConfigError);

  await server.stop(0);
});

const HERE = {
  fetch: () => new Response("here"),
  error: () => new Response(null, { status: 500 }),
};

test.each(["0.0.0.0", "*", "localhost"])(
  "a server that listens on %s says where clients reach it",
  async (host) => {
    const server = new HttpServer(parseConfig({}, { host, port: "0" }), NEVER);
    const address = server.listen(HERE);
    expect(address).toMatch(/^http:\/\/(?:127\.0\.0\.1|localhost):\d+$/);
    expect(await (await fetch(address)).text()).toBe("here");
    await server.stop(0);
  },
);

test("a server that cannot listen says what to do", async () => {
  const first = new HttpServer(parseConfig({}, { port: "0" }), NEVER);
  const { port } = new URL(first.listen(HERE));

  for (const [flags, says] of [
    [
      { port },
      `Cannot listen on 127.0.0.1:${port}: the port is in use; choose another with --port`,
    ],
    // A name that nobody has (RFC 6761), and no name at all.
    [{ host: "nobody.invalid", port }, `nobody.invalid:${port}: this machine does not have that`],
    [{ host: "%", port }, `%:${port}: this machine does not have that address`],
    // Addresses for documentation (RFC 5737, RFC 3849).
    [
      { host: "192.0.2.1", port },
      `192.0.2.1:${port}: this machine does not have that address; choose another with`,
    ],
    [{ host: "2001:db8::1", port }, `[2001:db8::1]:${port}: this machine does not have that`],
  ] as const) {
    const server = new HttpServer(parseConfig({}, flags), NEVER);
    expect(() => server.listen(HERE)).toThrow(says);
  }

  await first.stop(0);
});

test.each([
  ["5000", 130],
  ["120000", 130],
  ["200000", 210],
  ["240000", 250],
])(
  "with a REQUEST_TIMEOUT_MS of %s a connection may be idle for %d seconds: longer than a response takes, and than proxies keep one",
  async (timeout, idleTimeout) => {
    using serve = spyOn(Bun, "serve");
    const server = new HttpServer(
      parseConfig({ REQUEST_TIMEOUT_MS: timeout }, { port: "0" }),
      NEVER,
    );
    server.listen({ fetch: () => new Response(), error: () => new Response() });
    await server.stop(0);
    expect(serve.mock.calls[0]?.[0]).toMatchObject({ idleTimeout });
  },
);
