import { expect, setDefaultTimeout, test } from "bun:test";
import { executable } from "../support/executable.ts";
import { INTACT, makeLedger } from "../support/ledger.ts";
import {
  type Connection,
  connect,
  limited,
  newPlants,
  postBytes,
  startLoad,
  verdictOf,
  neverReading,
} from "../support/load.ts";
import { TEST_TIMEOUT_MS, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { get, requireReady } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("idle, slow and never-reading clients do not hurt the others", async () => {
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server());
  const { url } = server;
  const idle = await Promise.all(Array.from({ length: 50 }, () => connect(url)));
  const slow = await Promise.all(Array.from({ length: 50 }, () => connect(url)));
  const notReading = await Promise.all(Array.from({ length: 10 }, () => neverReading(url)));
  const request = postBytes({ id: 0n, name: "incomplete" });
  let sent = 0;
  const timer = setInterval(() => {
    for (const connection of slow) connection.send(request[sent] ?? "");
    if (sent < request.length - 2) sent++;
  }, 5);
  const ledger = makeLedger();
  const next = limited(newPlants("slow clients"), 500);
  const { responses, unanswered, wrong } = await startLoad({ url, connections: 16, ledger, next }).end;
  clearInterval(timer);
  expect({ responses, unanswered, wrong }).toEqual({ responses: { "200": 500 }, unanswered: 0, wrong: 0 });
  for (const connection of [...idle, ...slow, ...notReading]) connection.close("reset");
  // No plant of an incomplete request is stored: the ledger knows of none.
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});

test("a connection that is reset in the middle of a body stores nothing", async () => {
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server());
  const next = newPlants("reset");
  const requests = Array.from({ length: 60 }, (_, index) => {
    // A whole plant is there already; only the end of the body is missing.
    if (index % 3 === 0) return chunked(`{"id":${index},"name":"Fern"}`);
    const bytes = postBytes(next());
    return index % 3 === 1 ? bytes.slice(0, -1) : bytes.slice(0, bytes.indexOf("\r\n\r\n") + 10);
  });
  const connections: Connection[] = [];
  for (const request of requests) {
    const connection = await connect(server.url);
    connection.send(request);
    connections.push(connection);
  }
  expect(await get(server.url, "/livez")).toBe("200");
  for (const connection of connections) connection.close("reset");
  const ledger = makeLedger();
  await requireReady(server.url, ledger, next);
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});

test("a process limited to 64 file descriptors recovers when 200 connections are gone", async () => {
  using disk = makeDisk({ shim: false });
  const program = ["sh", "-c", 'ulimit -n 64; exec "$0" "$@"', ...executable()];
  await using server = await startServer(disk.server({ program }));
  const connections = await Promise.all(Array.from({ length: 200 }, () => connect(server.url)));
  for (const connection of connections) connection.close("reset");
  const ledger = makeLedger();
  await requireReady(server.url, ledger, newPlants("file descriptors"));
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});

test.each(["x", "localhost:3000"])(
  "a chunked body far over the limit is answered 413, whatever is not read of it (Host: %s)",
  async (host) => {
    using disk = makeDisk({ shim: false });
    await using server = await startServer(disk.server());
    const connection = await connect(server.url);
    const request = chunked(" ".repeat(1_000_000)).replace("Host: localhost", `Host: ${host}`);
    const response = await connection.request(`${request}0\r\n\r\n`);
    expect(response && verdictOf(response)).toBe("413/4131");
    expect(response?.headers.get("connection")).toBe("close");
    connection.close("reset");
  },
);

/** A request whose body is one chunk, without its end. */
function chunked(body: string): string {
  const head = postBytes("").replace("Content-Length: 0", "Transfer-Encoding: chunked");
  return `${head}${body.length.toString(16)}\r\n${body}\r\n`;
}
