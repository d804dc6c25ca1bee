/**
 * A closed loop of clients in one process: every connection sends its next plant once the response to the last one is
 * complete. Prints what the plants after the warm-up cost the server, as JSON of {@linkcode Load}.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

/** What a number of stored plants took. */
export interface Load {
  /** How many were answered 200. */
  readonly plants: number;
  /** How long that took. */
  readonly seconds: number;
  /** What the server process spent on it, all its threads together, in microseconds. */
  readonly userMicros: number;
  /** Likewise, inside the kernel. */
  readonly systemMicros: number;
}

const { url, pid, connections, plants, warmUp, ids } = options();
const fields = JSON.stringify({ name: "Monstera deliciosa", tag: "indoor" });
const queue = makeIds();
const request = makeRequest();
const end = Promise.withResolvers<Load>();

let sent = 0;
let answered = 0;
let start = sample();

// A minute, and two milliseconds a plant: five times what a lone client needs.
const limit = 60_000 + 2 * queue.length;
setTimeout(() => fail(`Only ${answered} of ${queue.length} plants were answered in ${limit} ms`), limit);
await Promise.all(Array.from({ length: connections }, connect));
console.log(JSON.stringify(await end.promise));
process.exit(0);

function options() {
  const { values } = parseArgs({
    options: {
      url: { type: "string", default: "" },
      pid: { type: "string", default: "" },
      connections: { type: "string", default: "" },
      plants: { type: "string", default: "" },
      "warm-up": { type: "string", default: "" },
      ids: { type: "string", default: "" },
    },
  });
  return {
    url: new URL(values.url),
    pid: Number(values.pid),
    connections: Number(values.connections),
    plants: Number(values.plants),
    warmUp: Number(values["warm-up"]),
    ids: values.ids,
  };
}

/** All of 16 digits, so that every request has the same length, and safe integers. */
function makeIds(): Float64Array {
  const first = 1e15;
  const random = () => first + Math.floor(Math.random() * 8 * first);
  return new Float64Array(warmUp + plants).map((_, index) => (ids === "random" ? random() : first + index));
}

/** One request for all: only the digits of the id change, which costs the least, and the server needs the core. */
function makeRequest() {
  const body = `{"id":${queue[0]},${fields.slice(1)}`;
  const head = [
    "POST /plants HTTP/1.1",
    `Host: ${url.host}`,
    `Authorization: Bearer ${process.env["AUTH_TOKENS"] ?? ""}`,
    "Content-Type: application/json",
    `Content-Length: ${body.length}`,
  ].join("\r\n");
  return { bytes: Buffer.from(`${head}\r\n\r\n${body}`), idAt: head.length + 4 + '{"id":'.length };
}

interface Connection {
  /** The part of a response that has arrived. */
  partial: string;
}

function connect() {
  return Bun.connect<Connection>({
    hostname: url.hostname,
    port: Number(url.port),
    socket: {
      open(socket) {
        socket.data = { partial: "" };
        send(socket);
      },
      data: receive,
      close: () => fail("The server closed a connection"),
      error: (_, error) => fail(String(error)),
    },
  });
}

function send(socket: Bun.Socket<Connection>): void {
  const id = queue[sent];
  if (id === undefined) return;
  sent++;
  request.bytes.write(String(id), request.idAt, "latin1");
  if (socket.write(request.bytes) !== request.bytes.length) fail("A request did not fit into the socket's buffer");
}

function receive(socket: Bun.Socket<Connection>, chunk: Buffer): void {
  const response = socket.data.partial + chunk.toString("latin1");
  if (!"HTTP/1.1 200".startsWith(response.slice(0, 12))) fail(`A response was not 200:\n${response}`);
  socket.data.partial = response.endsWith(`\r\n\r\n${fields}`) ? "" : response;
  if (socket.data.partial !== "") return;
  answered++;
  if (answered === warmUp) start = sample();
  if (answered === queue.length) end.resolve(since(start));
  send(socket);
}

function since(start: Sample): Load {
  const now = sample();
  return {
    plants,
    seconds: (now.at - start.at) / 1000,
    userMicros: now.userMicros - start.userMicros,
    systemMicros: now.systemMicros - start.systemMicros,
  };
}

type Sample = ReturnType<typeof sample>;

/** See proc_pid_stat(5): the second field, the name in parentheses, may itself have spaces. */
function sample() {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  // Linux counts in hundredths of a second for programs, whatever its own clock.
  return { at: performance.now(), userMicros: Number(fields[11]) * 10_000, systemMicros: Number(fields[12]) * 10_000 };
}

function fail(reason: string): never {
  console.error(reason);
  process.exit(1);
}
