import { expect, test } from "bun:test";
import { readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { connect, postBytes, neverReading } from "../support/load.ts";
import { startServer, skipsProc } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { get } from "./health.ts";

/** Bun's own limits are 12 s for headers and what `idleTimeout` says for the rest. */
const BOUND = 120_000;

async function closedInTime(name: string, closed: Promise<void>): Promise<string> {
  let timer: Timer | undefined;
  const timeout = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`${name} is still open`), BOUND);
  });
  return Promise.race([closed.then(() => `${name} is closed`), timeout]).finally(() => clearTimeout(timer));
}

/** How many sockets a process has open. */
function socketsOf(pid: number): number {
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).filter((fd) => isSocket(join(folder, fd))).length;
}

function isSocket(path: string): boolean {
  try {
    return readlinkSync(path).startsWith("socket:");
  } catch {
    // It was closed since the directory was read.
    return false;
  }
}

/** Waits until a process has accepted so many connections, and then until it has closed them all. */
async function acceptedAndClosed(connections: number, pid: number, before: number): Promise<void> {
  await untilSockets(pid, (count) => count >= before + connections);
  await untilSockets(pid, (count) => count <= before);
}

async function untilSockets(pid: number, isEnough: (count: number) => boolean): Promise<void> {
  const limit = performance.now() + BOUND;
  for (let count = socketsOf(pid); !isEnough(count); count = socketsOf(pid)) {
    if (performance.now() > limit) throw new Error(`The server has ${count} sockets open`);
    await Bun.sleep(100);
  }
}

/** A connection that sends a byte every two seconds, from where a request is cut. */
async function slow(url: string, request: string, from: number) {
  const connection = await connect(url);
  connection.send(request.slice(0, from));
  let next = from;
  const timer = setInterval(() => {
    if (!connection.isClosed() && next < request.length) connection.send(request[next++] ?? "");
  }, 2_000);
  return { ...connection, closed: connection.closed.finally(() => clearInterval(timer)) };
}

test.skipIf(skipsProc())(
  "idle, slow and never-reading connections are closed",
  async () => {
    using disk = makeDisk({ shim: false });
    await using server = await startServer(disk.server());
    const { url } = server;
    const request = postBytes({ id: 1n, name: "x".repeat(1_000) });
    const before = socketsOf(server.child.pid);
    const stalled = await connect(url);
    stalled.send(request.slice(0, -500));
    await neverReading(url);
    const began = performance.now();
    const clients = {
      "an idle connection": (await connect(url)).closed,
      "one with slow headers": (await slow(url, request, 1)).closed,
      "one with a slow body": (await slow(url, request, request.indexOf("\r\n\r\n") + 10)).closed,
      "one that stalls in its body": stalled.closed,
    };
    // A client that does not read does not see the end: the server's own sockets show it.
    const connections = Object.keys(clients).length + 1;
    const all = { ...clients, "one that never reads": acceptedAndClosed(connections, server.child.pid, before) };
    const seen = await Promise.all(
      Object.entries(all).map(async ([name, closed]) => {
        const verdict = await closedInTime(name, closed);
        console.log(`${verdict} after ${Math.round((performance.now() - began) / 1000)} s`);
        return verdict;
      }),
    );
    expect(seen).toEqual(Object.keys(all).map((name) => `${name} is closed`));
    expect(await get(url, "/livez")).toBe("200");
  },
  2 * BOUND,
);
