import { expect, test } from "bun:test";
import { withDeadline } from "../../src/async/deadline.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { jwksServer, signed, signingKey } from "../support/jwks.ts";
import { INTACT, type Ledger, makeLedger, printed } from "../support/ledger.ts";
import {
  bodyOf,
  type Connection,
  connect,
  getBytes,
  goodRequest,
  neverReading,
  postBytes,
  printedSeed,
  randomFrom,
  randomPlants,
  verdictOf,
  wireBytes,
  type WireResponse,
} from "../support/load.ts";
import { descriptorsOf, memoryOf } from "../support/proc.ts";
import { exitCodeOf, skipsProc, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";

/** `SOAK_SECONDS=300 bun test ./test/faults/soak.long.ts` is the whole of it. */
const SECONDS = Number(process.env["SOAK_SECONDS"] ?? 30);

/** How many good clients send plants as fast as they can. */
const GOOD_CLIENTS = 64;
const GOOD = "a good plant";

/**
 * How much more memory the last tenth of the time may take than the first one, in bytes. The caches that fill meanwhile
 * are bounded: 10,000 JWTs that were accepted take some of it, and SQLite's pages some.
 */
const MEMORY_BOUND = 64 * 2 ** 20;
/** Of the good clients' requests, the share that may get a 503: a busy moment may refuse a few. */
const REFUSED_SHARE_BOUND = 0.01;
/** How many descriptors a server may have more after the load: such as its connections to the identity provider. */
const DESCRIPTOR_BOUND = 4;
/** How long the server has to close what clients left open, in milliseconds: its idle timeout, and some more. */
const CLOSE_MS = 45_000;
/** How long a response may take before the request counts as hung, in milliseconds. */
const HANG_MS = 20_000;
/** How long to wait for a response to bytes that may be the beginning of a request, in milliseconds. */
const JUNK_MS = 500;

test.skipIf(skipsProc())(
  "a server under good, bad and hostile load loses nothing, responds as it should, and does not grow",
  async () => {
    const began = performance.now();
    const key = await signingKey("EdDSA");
    await using provider = jwksServer(key);
    using disk = makeDisk({ shim: false });
    const env = { REQUEST_TIMEOUT_MS: "5000", AUTH_JWKS_URL: provider.url.href, ...JWT_SETTINGS };
    await using server = await startServer(disk.server({ env }));
    const { pid } = server.child;
    const [random, ledger] = [randomFrom(printedSeed("soak")), makeLedger()];
    const clients: Clients = {
      url: server.url,
      ledger,
      random,
      next: randomPlants(random, { again: 0.2 }),
      jwt: (kind) => newJwt(key, kind),
    };
    const before = descriptorsOf(pid);

    const over = new AbortController();
    const seen = new Map<string, Map<string, number>>();
    const sending = Object.entries(soakKinds(clients)).flatMap(([name, kind]) => {
      const counts = new Map<string, number>();
      seen.set(name, counts);
      return Array.from({ length: kind.clients }, () => repeat(kind, counts, over.signal));
    });
    // A tenth of the time warms it up.
    await Bun.sleep(SECONDS * 100);
    const first = await meanMemory(pid, SECONDS * 100);
    await Bun.sleep(SECONDS * 800);
    const last = await meanMemory(pid, SECONDS * 100);
    over.abort();
    await Promise.all(sending);

    for (const [name, counts] of seen) console.log(`${name}: ${JSON.stringify(Object.fromEntries(counts))}`);
    const [mebibytesFirst, mebibytesLast] = [first, last].map((bytes) => (bytes / 2 ** 20).toFixed(0));
    console.log(`memory: ${mebibytesFirst} MiB in the first tenth, ${mebibytesLast} in the last`);
    const size = `${SECONDS} s, ${ledger.attempts()} sent, ${ledger.acknowledgements()} acknowledged`;
    const kinds = soakKinds(clients);
    const unexpected = [...seen].flatMap(([name, counts]) =>
      [...counts.keys()]
        .filter((verdict) => !kinds[name]?.expected.test(verdict) && !verdict.startsWith("503/"))
        .map((verdict) => `${name}: ${verdict}`),
    );
    expect(unexpected).toEqual([]);
    expect(shareOf(seen.get(GOOD), /^503/)).toBeLessThanOrEqual(REFUSED_SHARE_BOUND);
    expect(await descriptorsWithin(pid, before + DESCRIPTOR_BOUND)).toBeLessThanOrEqual(before + DESCRIPTOR_BOUND);
    expect(last - first).toBeLessThanOrEqual(MEMORY_BOUND);
    server.child.kill("SIGTERM");
    expect(await exitCodeOf(server.child)).toBe(0);
    expect(ledger.acknowledgements()).toBeGreaterThan(0);
    expect(printed({ experiment: "soak", size, verdict: ledger.judge(disk.database), began })).toEqual(INTACT);
  },
  (1.1 * SECONDS + 180) * 1_000,
);

const JWT_SETTINGS = { AUTH_ISSUER: "https://id.example.com/", AUTH_AUDIENCE: "plant-store" };

async function newJwt(key: Parameters<typeof signed>[0], kind: "good" | "forged"): Promise<string> {
  const exp = Math.floor(Date.now() / 1_000) + 600;
  const claims = { iss: JWT_SETTINGS.AUTH_ISSUER, aud: JWT_SETTINGS.AUTH_AUDIENCE, exp, jti: crypto.randomUUID() };
  if (kind === "good") return signed(key, claims);
  const [header, body] = (await signed(key, claims)).split(".");
  return `${header}.${body}.${crypto.getRandomValues(new Uint8Array(64)).toBase64({ alphabet: "base64url", omitPadding: true })}`;
}

async function repeat({ once, pauseMs }: SoakKind, counts: Map<string, number>, over: AbortSignal): Promise<void> {
  while (!over.aborted) {
    const seen = await once().catch((error: unknown) => String(error));
    counts.set(seen, (counts.get(seen) ?? 0) + 1);
    await Bun.sleep(pauseMs);
  }
}

function shareOf(counts: ReadonlyMap<string, number> = new Map(), pattern: RegExp): number {
  const sum = (entries: [verdict: string, count: number][]) => entries.reduce((total, [, count]) => total + count, 0);
  return sum([...counts].filter(([verdict]) => pattern.test(verdict))) / sum([...counts]);
}

/** What a process holds, in bytes, on the average of some milliseconds. */
async function meanMemory(pid: number, milliseconds: number): Promise<number> {
  const samples: number[] = [];
  for (const end = performance.now() + milliseconds; performance.now() < end; await Bun.sleep(200)) {
    samples.push(memoryOf(pid).now);
  }
  return samples.reduce((sum, sample) => sum + sample, 0) / samples.length;
}

/** How many are open once there are no more than the bound, or at the end of the time. */
async function descriptorsWithin(pid: number, bound: number): Promise<number> {
  const limit = performance.now() + CLOSE_MS;
  while (descriptorsOf(pid) > bound && performance.now() < limit) await Bun.sleep(500);
  return descriptorsOf(pid);
}

/** What the clients need. */
interface Clients {
  readonly url: string;
  readonly ledger: Ledger;
  readonly next: () => NewPlant;
  readonly random: () => number;
  /** A new JWT at each call: one that is good, or one with another signature. */
  readonly jwt: (kind: "good" | "forged") => Promise<string>;
}

/** Clients that do the same thing again and again. */
interface SoakKind {
  readonly clients: number;
  /** Between two requests of a client, in milliseconds. */
  readonly pauseMs: number;
  /** Sends one request on a connection of its own, and says what came of it: see {@linkcode seenOf}. */
  readonly once: () => Promise<string>;
  /** What may come of it, beside a 503. */
  readonly expected: RegExp;
}

const STORED = /^(?:200|409\/4091)$/;
const PLANT = '{"id":1,"name":"Fern"}';

/** Clients of every bad kind, and good ones that are odd. */
function soakKinds({ url, ledger, next, random, jwt }: Clients): Record<string, SoakKind> {
  const ask = (bytes: string | Uint8Array) => onConnection(url, (connection) => connection.request(bytes));
  const post = (body: string, token?: string) => ask(postBytes(body, token));
  const store = (send: (connection: Connection, bytes: string) => Promise<WireResponse | undefined>, token?: string) =>
    storeOne(ledger, next(), (plant) => onConnection(url, (connection) => send(connection, postBytes(plant, token))));
  const authorized = `\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`;

  const idle: Connection[] = [];
  const keepAlive = async (plant: NewPlant) => {
    const connection = idle.pop() ?? (await connect(url));
    const seen = await seenOf(connection.request(postBytes(plant)));
    if (!connection.isClosed()) idle.push(connection);
    return seen;
  };

  return {
    [GOOD]: kind(GOOD_CLIENTS, 0, STORED, () => storeOne(ledger, next(), keepAlive)),
    "an unknown token": kind(4, 10, /^401\/4012$/, () => post(PLANT, `unknown${random()}`)),
    "no token": kind(1, 10, /^401\/4011$/, () => ask(postBytes(PLANT).replace(/Authorization.*\r\n/, ""))),
    "a forged JWT": kind(4, 10, /^401\/4012$/, async () => post(PLANT, await jwt("forged"))),
    "a new JWT": kind(2, 20, STORED, async () =>
      store((connection, bytes) => connection.request(bytes), await jwt("good")),
    ),
    "bad JSON": kind(2, 10, /^400\/4001$/, () => post('{"id": 1, "name": "Fern"')),
    "a wrong shape": kind(2, 10, /^400\/4002$/, () => post('{"id": "1", "name": null}')),
    "deep nesting": kind(1, 20, /^400\/4001$/, () => post("[".repeat(30_000))),
    "a huge body": kind(1, 50, /^413\/4131$/, () => post("x".repeat(1_000_000))),
    "a huge chunked body": kind(1, 50, /^413\/4131$/, () => ask(chunked("x".repeat(500_000), 50_000))),
    "one-byte chunks": kind(2, 20, STORED, () => storeOne(ledger, next(), (plant) => ask(chunked(bodyOf(plant), 1)))),
    "a slow body": kind(16, 0, STORED, () => store(sendSlowly)),
    "a reset in a body": kind(4, 20, /^none$/, () => reset(url, postBytes(PLANT).slice(0, -5))),
    "never reading": kind(2, 500, /^none$/, () => neverRead(url)),
    junk: kind(2, 10, /^(?:none|4\d\d|505)$/, () => sendJunk(url, random)),
    "1,500 parameters": kind(1, 20, /^404\/4041$/, () => ask(getBytes(`/plant?${"a=1&".repeat(1_500)}`))),
    "a scrape": kind(2, 200, /^200$/, () => ask(getBytes("/metrics").replace("\r\n\r\n", authorized))),
    "/livez": kind(1, 50, /^200$/, () => ask(getBytes("/livez"))),
    "/readyz": kind(1, 100, /^200$/, () => ask(getBytes("/readyz"))),
  };
}

function kind(clients: number, pauseMs: number, expected: RegExp, once: SoakKind["once"]): SoakKind {
  return { clients, pauseMs, expected, once };
}

/** Sends a plant, tells the ledger, and says what came of it. */
async function storeOne(ledger: Ledger, plant: NewPlant, send: (plant: NewPlant) => Promise<string>): Promise<string> {
  ledger.attempt(plant);
  const seen = await send(plant);
  if (seen === "200") ledger.acknowledge(plant);
  return seen === "409/4091" && !ledger.hasRival(plant) ? "409 without a rival" : seen;
}

/** Status and error number, the status only of a response without a body, "none", or "hung". */
async function seenOf(response: Promise<WireResponse | undefined>): Promise<string> {
  const seen = await withDeadline(response, HANG_MS, () => "hung" as const);
  if (seen === undefined) return "none";
  if (seen === "hung") return "hung";
  return seen.body === "" ? String(seen.status) : verdictOf(seen);
}

async function onConnection(
  url: string,
  send: (connection: Connection) => Promise<WireResponse | undefined>,
): Promise<string> {
  const connection = await connect(url);
  const seen = await seenOf(send(connection));
  connection.close();
  return seen;
}

/** A `POST /plants` with its body in chunks of so many bytes. Not as text: a chunk may end within a character. */
function chunked(body: string, bytes: number): Buffer {
  return wireBytes(goodRequest(TOKEN, body), { chunkSizes: [bytes] });
}

/** In twenty pieces, for about a second. */
async function sendSlowly(connection: Connection, request: string): Promise<WireResponse | undefined> {
  const bytes = Buffer.from(request);
  const size = Math.ceil(bytes.length / 20);
  for (let at = 0; at < bytes.length; at += size) {
    connection.send(bytes.subarray(at, at + size));
    await Bun.sleep(50);
  }
  return connection.response();
}

async function reset(url: string, bytes: string): Promise<string> {
  const connection = await connect(url);
  connection.send(bytes);
  await Bun.sleep(5);
  connection.close("reset");
  return "none";
}

async function neverRead(url: string): Promise<string> {
  const connection = await neverReading(url);
  await Bun.sleep(2_000);
  connection.close("reset");
  return "none";
}

/** Bun's own parser responds without a body, waits for more, or closes. */
async function sendJunk(url: string, random: () => number): Promise<string> {
  const bytes = Uint8Array.from({ length: 1 + random() * 200 }, () => random() * 256);
  const connection = await connect(url);
  const response = connection.request(
    random() < 0.5 ? bytes : Buffer.concat([Buffer.from("POST /plants HTTP/1.1\r\n"), bytes]),
  );
  const seen = await withDeadline(seenOf(response), JUNK_MS, () => "none");
  connection.close("reset");
  return seen;
}
