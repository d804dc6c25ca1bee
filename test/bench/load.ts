/**
 * The load generator for where there is no wrk: a closed loop of clients in one process, each of which sends its next
 * request once the response to the last one is complete. Prints JSON of {@linkcode GeneratorResult}.
 *
 * `bun test/bench/load.ts --url URL [--connections 64] [--seconds 3 | --plants 40000] [--ids ascending|random]
 * [--first 1e15] [--request FILE] [--status 200]`
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { ID_PLACE, rawRequest } from "./requests.ts";
import { quantile } from "./statistics.ts";

/** What a generator counted. */
export interface GeneratorResult {
  readonly responses: number;
  /** Those of a status from 400 on. */
  readonly refused: number;
  /** Connections that failed. */
  readonly broken: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

const { values: flags } = parseArgs({
  options: {
    url: { type: "string", default: "" },
    connections: { type: "string", default: "64" },
    seconds: { type: "string", default: "Infinity" },
    plants: { type: "string", default: "Infinity" },
    ids: { type: "string", default: "ascending" },
    first: { type: "string", default: "1e15" },
    request: { type: "string", default: "" },
    status: { type: "string", default: "200" },
  },
});
const url = new URL(flags.url);
const bytes = Buffer.from(flags.request === "" ? rawRequest() : readFileSync(flags.request));
const idAt = bytes.indexOf(ID_PLACE);
const plants = Number(flags.plants);
const start = performance.now();
const end = start + Number(flags.seconds) * 1_000;
const durations: number[] = [];
let [sent, id] = [0, Number(flags.first)];

await Promise.all(Array.from({ length: Number(flags.connections) }, client));
const seconds = (performance.now() - start) / 1_000;
const sorted = Float64Array.from(durations).toSorted();
const [p50Ms, p99Ms] = [quantile(sorted, 0.5), quantile(sorted, 0.99)];
const refused = Number(flags.status) < 400 ? 0 : sorted.length;
const result: GeneratorResult = { responses: sorted.length, refused, broken: 0, seconds, p50Ms, p99Ms };
console.log(JSON.stringify(result));

/** Resolves once there is nothing more to send, and the last response has come. */
async function client(): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let [partial, sentAt] = ["", 0];
  const socket = await Bun.connect({
    hostname: url.hostname,
    port: Number(url.port),
    socket: {
      data(socket, chunk) {
        partial += chunk.toString("latin1");
        if (!isComplete(partial)) return;
        durations.push(performance.now() - sentAt);
        if (!partial.startsWith(`HTTP/1.1 ${flags.status}`))
          return reject(new Error(`Not ${flags.status}:\n${partial}`));
        partial = "";
        next(socket);
      },
      close: () => reject(new Error("The server closed a connection")),
      error: (_, error) => reject(error),
    },
  });
  next(socket);
  await promise;
  socket.terminate();

  function next(socket: Bun.Socket): void {
    sentAt = performance.now();
    if (sent >= plants || sentAt >= end) return resolve();
    sent++;
    if (idAt !== -1) bytes.write(nextId(), idAt, "latin1");
    if (socket.write(bytes) !== bytes.length) reject(new Error("A request did not fit into the socket's buffer"));
  }
}

/** Of 16 digits, and a safe integer. */
function nextId(): string {
  return String(flags.ids === "random" ? 1e15 + Math.floor(Math.random() * 8e15) : ++id);
}

/** Every program under test gives a Content-Length. */
function isComplete(response: string): boolean {
  const headEnd = response.indexOf("\r\n\r\n");
  if (headEnd === -1) return false;
  const length = /^content-length: *(\d+)/im.exec(response)?.[1];
  if (length === undefined) throw new Error(`A response has no Content-Length:\n${response}`);
  return response.length >= headEnd + 4 + Number(length);
}
