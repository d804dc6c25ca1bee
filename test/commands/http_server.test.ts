import { expect, test } from "bun:test";
import { type HttpServer, listen } from "../../src/commands/http_server.ts";
import { parseConfig } from "../../src/commands/config.ts";
import { connect, getBytes, postBytes } from "../support/load.ts";

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
