import { expect } from "bun:test";

import type { NewPlant } from "../../src/plant/plant.ts";
import { INTACT, type Ledger, makeLedger } from "../support/ledger.ts";
import {
  connect,
  type Connection,
  getBytes,
  type LoadOptions,
  newPlants,
  postBytes,
  startLoad,
  verdictOf,
  type WireResponse,
} from "../support/load.ts";
import { moss } from "../support/plants.ts";
import { exitCodeOf, startServer } from "../support/program.ts";
import { type DiskServerOptions, makeDisk } from "../support/shim.ts";

/**
 * A server on a disk of its own, and a ledger of what it is sent. Without the shim the disk is a
 * plain directory. A first experiment needs this function only.
 */
export async function startOnDisk({
  shim = false,
  ...options
}: DiskServerOptions & { readonly shim?: boolean } = {}) {
  await using stack = new AsyncDisposableStack();
  const disk = stack.use(makeDisk({ shim }));
  const server = stack.use(await startServer(disk.server(options)));
  const ledger = makeLedger();
  const started = stack.move();

  return {
    ...server,
    disk,
    ledger,
    /** Clients that send plants without a pause, and tell the ledger. @default 16, new plants */
    load: ({ connections = 16, next = newPlants("load"), ...options }: Partial<LoadOptions> = {}) =>
      startLoad({ url: server.url, ledger, connections, next, ...options }),
    /** Requires that the file holds every acknowledged plant, and none that was not sent. */
    requireIntact: () => expect(ledger.judge(disk.database)).toEqual(INTACT),
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}

/** Asks a program to end by a signal, and resolves to its exit code. */
export function stop(
  { child }: { readonly child: Bun.Subprocess },
  signal: NodeJS.Signals = "SIGTERM",
) {
  child.kill(signal);
  return exitCodeOf(child);
}

/** Sends one request on a connection of its own. */
export async function ask(url: string, bytes: string): Promise<WireResponse> {
  const connection = await connect(url);
  const response = await connection.request(bytes);
  connection.close();
  if (response === undefined) throw new Error(`No response to ${bytes.slice(0, 40)}`);
  return response;
}

/** Status and error number of a GET. */
export async function get(url: string, path: string): Promise<string> {
  return verdictOf(await ask(url, getBytes(path)));
}

/** Sends one plant, and tells the ledger. */
export async function send(url: string, ledger: Ledger, plant: NewPlant): Promise<WireResponse> {
  ledger.attempt(plant);
  const response = await ask(url, postBytes(plant));
  if (response.status === 200) ledger.acknowledge(plant);
  return response;
}

/**
 * Holds a server whose storage is sick to being alive, to saying that it is not ready, and to
 * refusing a plant.
 */
export async function requireUnavailable(
  url: string,
  ledger: Ledger,
  plant: NewPlant,
): Promise<string> {
  const response = await send(url, ledger, plant);
  const seen = {
    plant: verdictOf(response),
    livez: await get(url, "/livez"),
    readyz: await get(url, "/readyz"),
  };
  expect(seen).toEqual({ plant: "503/5032", livez: "200", readyz: "503/5032" });

  return response.body;
}

/** Waits for a server to be ready again by itself, and for a plant to be stored. */
export async function requireReady(
  url: string,
  ledger: Ledger,
  next: () => NewPlant,
  limitMs = 30_000,
): Promise<void> {
  const limit = performance.now() + limitMs;
  for (;;) {
    const readyz = await get(url, "/readyz");
    const plant = readyz === "200" ? verdictOf(await send(url, ledger, next())) : "not sent";
    if (plant === "200" || plant === "409/4091") return;
    // A slow machine misses a short deadline now and then, also with a disk that is well.
    if (performance.now() > limit)
      throw new Error(`The fault is gone: ${JSON.stringify({ readyz, plant })}`);
    await Bun.sleep(20);
  }
}

/**
 * A connection whose request ends in the middle of its body, and a server that has read what there
 * is of it.
 */
export async function sendHalf(url: string): Promise<Connection> {
  const connection = await connect(url);
  connection.send(postBytes(moss({ id: 2n })).slice(0, -5));
  expect(await get(url, "/livez")).toBe("200");
  return connection;
}
