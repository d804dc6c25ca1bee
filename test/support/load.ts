import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { connect as connectTls } from "node:tls";

import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "./client.ts";
import type { Ledger } from "./ledger.ts";
import type { WireRequest } from "./oracle.ts";
import { fern, jsonOf, OPTIONAL_TEXT, returned, TEXT } from "./plants.ts";

/** Random numbers from 0 to 1, the same for the same seed (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A seed for this run, printed so that `TEST_SEED` can repeat the run. */
export function printedSeed(experiment: string): number {
  const { TEST_SEED = Math.floor(Math.random() * 2 ** 32) } = process.env;
  const seed = Number(TEST_SEED);
  console.log(`${experiment}: seed ${seed}`);
  return seed;
}

const NAMES = ["Fern", "", "Ivy 🌱", "e\u0301", "O'Hara \"\\", "\u{10FFFF}\u0001\uFEFF"];

/** A source of plants that ends. */
export function limited(next: () => NewPlant, count: number): () => NewPlant | undefined {
  let left = count;
  return () => (left-- > 0 ? next() : undefined);
}

/** How a source of plants behaves. */
export interface PlantsOptions {
  /** Ids are drawn from this many; few make clients meet at one id. @default the whole int64 */
  readonly ids?: number;
  /** The longest name. @default {8_000} */
  readonly longest?: number;
  /** How often a plant was sent before or is a rival for an id that was. @default {0.1} */
  readonly again?: number;
}

/** An endless source of plants. Most are new; some were sent before, or are rivals for an id. */
export function randomPlants(
  random: () => number,
  { ids, longest = 8_000, again = 0.1 }: PlantsOptions = {},
): () => NewPlant {
  const sent: NewPlant[] = [];
  const upTo = (limit: number) => Math.floor(random() * limit);
  const newId = () => (BigInt(upTo(2 ** 32)) << 32n) + BigInt(upTo(2 ** 32)) - 2n ** 63n;
  const fresh = () =>
    fern({
      id: ids === undefined ? newId() : BigInt(upTo(ids)),
      [TEXT]: `${NAMES[upTo(NAMES.length)]} ${"x".repeat(random() < 0.1 ? upTo(longest) : upTo(30))}`,
      ...(random() < 0.7 && { [OPTIONAL_TEXT]: NAMES[upTo(NAMES.length)] ?? "" }),
    });
  return () => {
    const former = random() < again ? sent[upTo(sent.length)] : undefined;
    if (former !== undefined)
      return random() < 0.7 ? former : { ...former, [TEXT]: `rival ${upTo(9)}` };
    const plant = fresh();
    // A sample is enough for retries and rivals.
    sent[sent.length < 1_000 ? sent.length : upTo(1_000)] = plant;
    return plant;
  };
}

/** An endless source of new plants, from a seed that is printed for the experiment. */
export function newPlants(experiment: string): () => NewPlant {
  return randomPlants(randomFrom(printedSeed(experiment)), { again: 0 });
}

/** A response as it came over the wire. */
export interface WireResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

/** One connection; requests on it go one after the other. */
export type Connection = Awaited<ReturnType<typeof connect>>;

/**
 * Connects to a server, over TLS without checking its certificate if the URL says so.
 *
 * @throws {Error} If nothing listens there.
 */
export async function connect(url: string) {
  const { hostname: host, port, protocol } = new URL(url);
  const address = { host, port: Number(port) };
  const isTls = protocol === "https:";
  const socket = isTls
    ? connectTls({ ...address, rejectUnauthorized: false })
    : connectTcp(address);

  await once(socket, isTls ? "secureConnect" : "connect");
  let received: Buffer<ArrayBufferLike> = Buffer.alloc(0);

  /** Wakes whoever waits for a response. */
  let wake = () => {};
  const closed = Promise.withResolvers<void>();
  let isClosed = false;

  socket.on("data", (chunk) => {
    received = Buffer.concat([received, Buffer.from(chunk)]);
    wake();
  });

  const end = () => {
    isClosed = true;
    closed.resolve();
    wake();
  };

  for (const event of ["end", "error", "close"]) socket.on(event, end);

  async function response(method?: string): Promise<WireResponse | undefined> {
    for (;;) {
      const parsed = parseResponse(received, { hasBody: method !== "HEAD", isEnded: isClosed });
      if (parsed !== undefined) {
        received = received.subarray(parsed.length);
        return parsed.response;
      }
      if (isClosed) return undefined;
      await new Promise<void>((resolve) => (wake = resolve));
    }
  }

  return {
    /** Sends bytes. */
    send: (bytes: string | Uint8Array) => void socket.write(bytes),
    /**
     * The next response; `undefined` if the connection ends without one. That to a HEAD request has
     * no body.
     */
    response,
    /** Sends bytes and waits for a response; `undefined` if the connection ends without one. */
    request(bytes: string | Uint8Array): Promise<WireResponse | undefined> {
      socket.write(bytes);
      return response(Buffer.from(bytes).toString("latin1", 0, 4));
    },

    /** Reads no more. */
    pause: () => void socket.pause(),
    /** Whether it has ended. */
    isClosed: () => isClosed,
    /** Resolves when it has ended. */
    closed: closed.promise,
    /** Closes it, or resets it: what was sent and not read yet is thrown away. */
    close: (how: "close" | "reset" = "close") =>
      void (how === "reset" ? socket.resetAndDestroy() : socket.end()),
  };
}

/** RFC 9112, section 6.3: by the chunks, by Content-Length, or to the end of the connection. */
function parseResponse(
  bytes: Buffer,
  { hasBody, isEnded }: { readonly hasBody: boolean; readonly isEnded: boolean },
) {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd === -1) return undefined;
  const [statusLine = "", ...lines] = bytes.toString("latin1", 0, headEnd).split("\r\n");
  const headers = new Headers(
    lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]),
  );
  const rest = bytes.subarray(headEnd + 4);
  const body = hasBody ? parseBody(rest, headers, isEnded) : { text: "", length: 0 };

  if (body === undefined) return undefined;
  const response: WireResponse = {
    status: Number(statusLine.split(" ")[1]),
    headers,
    body: body.text,
  };

  return { response, length: headEnd + 4 + body.length };
}

function parseBody(
  bytes: Buffer,
  headers: Headers,
  isEnded: boolean,
): { text: string; length: number } | undefined {
  if (headers.has("transfer-encoding")) return parseChunks(bytes);
  const isToTheEnd = !headers.has("content-length") && headers.get("connection") === "close";
  if (isToTheEnd && !isEnded) return undefined;
  const length = isToTheEnd ? bytes.length : Number(headers.get("content-length") ?? 0);
  return bytes.length < length ? undefined : { text: bytes.toString("utf8", 0, length), length };
}

/** RFC 9112, section 7.1. */
function parseChunks(bytes: Buffer): { text: string; length: number } | undefined {
  const parts: Buffer[] = [];
  for (let at = 0; ;) {
    const lineEnd = bytes.indexOf("\r\n", at);
    if (lineEnd === -1) return undefined;
    const size = Number.parseInt(bytes.toString("latin1", at, lineEnd), 16);
    if (Number.isNaN(size)) throw new Error(`Not a chunk: ${bytes.toString("latin1", at)}`);
    const begin = lineEnd + 2;
    const end = lineEnd + 2 + size;

    if (bytes.length < end + 2) return undefined;
    if (size === 0) return { text: Buffer.concat(parts).toString(), length: end + 2 };
    parts.push(bytes.subarray(begin, end));
    at = end + 2;
  }
}

/** A valid request, except perhaps for its body. */
export function goodRequest(token: string, body = ""): WireRequest {
  return {
    path: "/plants",
    method: "POST",
    authorization: [`Bearer ${token}`],
    contentType: "application/json",
    body: new TextEncoder().encode(body),
  };
}

/** The headers of a request, in the order of the wire. */
export function headersOf(request: Omit<WireRequest, "body">): [name: string, value: string][] {
  const { authorization, contentType, contentEncoding } = request;
  const headers = authorization.map((value): [string, string] => ["Authorization", value]);
  if (contentType !== undefined) headers.push(["Content-Type", contentType]);
  if (contentEncoding !== undefined) headers.push(["Content-Encoding", contentEncoding]);
  return headers;
}

/** How a request is written down. */
export interface Framing {
  readonly host: string;
  readonly isLowerCase: boolean;
  /** The sizes of the chunks, again and again; none for a body with a Content-Length. */
  readonly chunkSizes: readonly number[];
}

/** A request as bytes, with a Content-Length unless it is to be framed in another way. */
export function wireBytes(request: WireRequest, framing: Partial<Framing> = {}): Buffer {
  const { host = "localhost", isLowerCase = false, chunkSizes = [] } = framing;
  const { method, path, body } = request;
  const isChunked = chunkSizes.length > 0;
  const length = isChunked
    ? ["Transfer-Encoding", "chunked"]
    : ["Content-Length", String(body.length)];
  const lines = [["Host", host], ...headersOf(request), length].map(
    ([name = "", value]) => `${isLowerCase ? name.toLowerCase() : name}: ${value}`,
  );
  const head = [`${method} ${path} HTTP/1.1`, ...lines].join("\r\n");

  return Buffer.concat([
    Buffer.from(`${head}\r\n\r\n`, "latin1"),
    isChunked ? chunked(body, chunkSizes) : body,
  ]);
}

/** RFC 9112, section 7.1. */
function chunked(bytes: Uint8Array, sizes: readonly number[]): Buffer {
  const parts: Uint8Array[] = [];
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const chunk = bytes.subarray(at, at + (sizes[turn % sizes.length] ?? 1));
    const size = chunk.length.toString(16);
    parts.push(
      Buffer.from(`${turn % 2 === 0 ? size : size.toUpperCase()}\r\n`),
      chunk,
      Buffer.from("\r\n"),
    );
    at += chunk.length;
  }

  return Buffer.concat([...parts, Buffer.from("0\r\n\r\n")]);
}

/** A whole request that creates a plant. */
export function postBytes(body: string | NewPlant, token = TOKEN): string {
  return wireBytes(goodRequest(token, typeof body === "string" ? body : jsonOf(body))).toString();
}

/** A request that reads a path. */
export function getBytes(path: string): string {
  return `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
}

/** Status and error number, as in "200" and "503/5032". */
export function verdictOf({ status, body }: WireResponse): string {
  if (status === 200) return "200";
  const { error } = JSON.parse(body) as { error: number };
  return `${status}/${error}`;
}

/** What a load came to. */
export interface LoadReport {
  /** How many requests got which response. */
  readonly responses: Readonly<Record<string, number>>;
  /** Requests whose connection ended before a response. */
  readonly unanswered: number;
  /** Responses of 200 with a plant other than the one that was sent. */
  readonly wrong: number;
}

/** How to load a server. */
export interface LoadOptions {
  readonly url: string;
  readonly connections: number;
  readonly ledger: Ledger;
  /** The next plant to send; `undefined` ends the client that asked. */
  readonly next: () => NewPlant | undefined;
  /**
   * The responses after which a client sends no more. @default "503/5033": it is told to come back
   * later
   */
  readonly endOn?: readonly string[];
}

/**
 * Clients that each send the next plant as soon as the one before is answered, until the server is
 * gone.
 */
export function startLoad({ url, connections, ledger, next, endOn = ["503/5033"] }: LoadOptions) {
  const responses: Record<string, number> = {};
  let unanswered = 0;
  let wrong = 0;
  const over = new AbortController();

  async function client(): Promise<void> {
    let connection = await connect(url).catch(() => undefined);
    for (
      let plant = next();
      connection !== undefined && plant !== undefined && !over.signal.aborted;
      plant = next()
    ) {
      ledger.attempt(plant);
      const response = await connection.request(postBytes(plant));
      if (response === undefined) unanswered++;
      else if (endOn.includes(count(plant, response))) break;

      const isLast =
        response === undefined ||
        response.headers.get("connection") === "close" ||
        connection.isClosed();
      if (isLast) connection = await connect(url).catch(() => undefined);
    }

    connection?.close();
  }

  function count(plant: NewPlant, response: WireResponse): string {
    const verdict = verdictOf(response);
    responses[verdict] = (responses[verdict] ?? 0) + 1;
    if (response.status !== 200) return verdict;
    ledger.acknowledge(plant);

    if (!Bun.deepEquals(JSON.parse(response.body), returned(plant))) wrong++;
    return verdict;
  }

  const end = Promise.all(Array.from({ length: connections }, client)).then((): LoadReport => {
    over.abort();
    return { responses, unanswered, wrong };
  });

  const answered = () => Object.values(responses).reduce((sum, count) => sum + count, 0);
  return {
    /** Resolves once every client has ended: the server is gone, or there is nothing more to send. */
    end,
    /** How many responses came so far. */
    answered,
    /**
     * Waits for so many more responses. Nothing but the test's own time limit bounds it.
     *
     * @throws {Error} If all clients have ended before.
     */
    async answers(count: number): Promise<void> {
      const enough = answered() + count;
      while (answered() < enough) {
        if (over.signal.aborted)
          throw new Error(`The load is over: ${JSON.stringify({ responses, unanswered })}`);
        await Bun.sleep(1);
      }
    },

    /** Ends each client after the response that it waits for. */
    stop(): Promise<LoadReport> {
      over.abort();
      return end;
    },
  };
}

/** A client that asks for a large file, and reads nothing of it. */
export async function neverReading(url: string): Promise<Connection> {
  const connection = await connect(url);
  connection.pause();
  connection.send(getBytes("/swagger/swagger-ui-bundle.js"));
  return connection;
}
