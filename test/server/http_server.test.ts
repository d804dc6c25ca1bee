import { expect, spyOn, test } from "bun:test";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { type HttpServer, listen } from "../../src/server/http_server.ts";
import { parseConfig } from "../../src/settings/config.ts";
import { connect, getBytes, postBytes } from "../support/load.ts";
import { emptyDirectory, ROOT, skipsProc } from "../support/program.ts";

/** A server that echoes bodies, and a connection on which it has half of one. */
async function halfSent() {
  const arrived = Promise.withResolvers<void>();
  const server = await listen(parseConfig({}, { port: "0" }), {
    async fetch(request) {
      arrived.resolve();
      return new Response(await request.text());
    },
    error: () => new Response(null, { status: 500 }),
  });
  const connection = await connect(server.address);
  const bytes = postBytes({ id: 1n, name: "Fern" });
  connection.send(bytes.slice(0, -5));
  await arrived.promise;
  return { server, connection, rest: bytes.slice(-5) };
}

/** A pause as one that ends: the server listens again. */
async function pauseAndResume(server: HttpServer): Promise<void> {
  server.pause();
  server.resume();
  const connection = await connect(server.address);
  expect(await connection.request(getBytes("/"))).toMatchObject({ status: 200 });
  connection.close();
}

test.each([1, 2])("after %d pauses stop() waits for a request from before them", async (pauses) => {
  const { server, connection, rest } = await halfSent();
  for (let done = 0; done < pauses; done++) await pauseAndResume(server);
  const order: string[] = [];
  const stopped = server.stop(60_000).then(() => order.push("stopped"));
  await expect(connect(server.address)).rejects.toThrow();
  order.push("rest sent");
  expect(await connection.request(rest)).toMatchObject({ status: 200, body: '{"id":1,"name":"Fern"}' });
  await stopped;
  expect(order).toEqual(["rest sent", "stopped"]);
});

test("after a pause stop() closes a connection from before it when the time is over", async () => {
  const { server, connection } = await halfSent();
  await pauseAndResume(server);
  await server.stop(1);
  await connection.closed;
});

test.each(["0.0.0.0", "*", "localhost"])("a server that listens on %s says where clients reach it", async (host) => {
  const fetchNothing = { fetch: () => new Response("here"), error: () => new Response(null, { status: 500 }) };
  const server = await listen(parseConfig({}, { host, port: "0" }), fetchNothing);
  expect(server.address).toMatch(/^http:\/\/(?:127\.0\.0\.1|localhost):\d+$/);
  expect(await (await fetch(server.address)).text()).toBe("here");
  await server.stop(0);
});

test("a certificate that is read when the server stops does not make it listen again", async () => {
  using directory = emptyDirectory();
  const file = (name: string) => Bun.file(join(ROOT, "test/support/tls", name));
  const [cert, key] = [join(directory.path, "server.crt"), join(directory.path, "server.key")];
  for (const path of [cert, key]) await Bun.write(path, file(`localhost${path.slice(-4)}`));
  const server = await listen(parseConfig({ TLS_CERT_FILE: cert, TLS_KEY_FILE: key }, { port: "0" }), {
    fetch: () => new Response("a response"),
    error: () => new Response(null, { status: 500 }),
  });
  await Bun.file(cert).delete();
  expect(Bun.spawnSync(["mkfifo", cert]).exitCode).toBe(0);
  const renewed = server.renewCertificate();
  // A pipe opens when its reader is there.
  const pipe = await open(cert, "w");
  await server.stop(60_000);
  await pipe.writeFile(await file("localhost.crt").bytes());
  await pipe.close();
  await renewed;
  await expect(connect(server.address)).rejects.toThrow();
});

// Elsewhere the old socket is closed before.
test.skipIf(skipsProc())(
  "where it cannot listen with a new certificate, as on an address that is gone, the server goes on with the old one",
  async () => {
    const file = (name: string) => join(ROOT, "test/support/tls", name);
    const tls = { TLS_CERT_FILE: file("localhost.crt"), TLS_KEY_FILE: file("localhost.key") };
    const server = await listen(parseConfig(tls, { port: "0" }), {
      fetch: () => new Response("a response"),
      error: () => new Response(null, { status: 500 }),
    });
    {
      using _ = spyOn(Bun, "serve").mockImplementation(() => {
        throw new Error("the address is gone");
      });
      await expect(server.renewCertificate()).rejects.toThrow("the address is gone");
    }
    const response = await fetch(server.address, { tls: { ca: Bun.file(file("localhost.crt")) } });
    expect(await response.text()).toBe("a response");
    await server.stop(60_000);
  },
);
