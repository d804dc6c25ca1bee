import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";

import { withDeadline } from "../../src/async/timers.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { AUDIENCE, ISSUER, jwksServer, signed, signingKey } from "../support/jwt_provider.ts";
import { INTACT, type Ledger, printed } from "../support/ledger.ts";
import {
  connect,
  type Connection,
  getBytes,
  goodRequest,
  neverReading,
  postBytes,
  printedSeed,
  randomFrom,
  randomPlants,
  startLoad,
  verdictOf,
  wireBytes,
  type WireResponse,
} from "../support/load.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { memoryOf } from "../support/proc.ts";
import { skipsProc } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { startOnDisk, stop } from "./health.ts";

/** `SOAK_SECONDS=300 bun test ./test/faults/soak.long.ts` is the whole of it. */
const SECONDS = Number(process.env["SOAK_SECONDS"] ?? scaled(10, 30));

/**
 * How much more memory the last tenth of the time may take than the first, in bytes. Two bounded
 * caches fill meanwhile: that of 10,000 accepted JWTs, and SQLite's pages.
 */
const MEMORY_BOUND = 64 * 2 ** 20;
/** Of the good clients' requests, the share that may get a 503: a busy moment may refuse a few. */
const REFUSED_SHARE_BOUND = 0.01;
/**
 * How many descriptors a server may have more after the load: such as its connections to the
 * identity provider.
 */
const DESCRIPTOR_BOUND = 4;
/**
 * How long the server has to close what clients left open, in milliseconds: its idle timeout, and
 * some more.
 */
const CLOSE_MS = 45_000;
/** How long a response may take before the request counts as hung, in milliseconds. */
const HANG_MS = 20_000;
/** How long to wait for a response to bytes that may be the beginning of a request, in milliseconds. */
const JUNK_MS = 500;

test.skipIf(skipsProc())(
  "a server under good, bad and hostile load loses nothing, responds as it should, and does not grow",
  async () => {
    await using jwts = await identityProvider();
    const env = { REQUEST_TIMEOUT_MS: "5000", ...jwts.env };
    await using server = await startOnDisk({ env });
    const { url, disk, ledger } = server;
    const { pid } = server.child;
    const random = randomFrom(printedSeed("soak"));
    const next = randomPlants(random, { again: 0.2 });

    const kinds = oddClients(url, ledger, next, random, jwts);

    const descriptors = () => readdirSync(`/proc/${pid}/fd`).length;
    const before = descriptors();

    const over = new AbortController();
    const good = startLoad({ url, connections: 64, ledger, next, endOn: [] });

    const odd = kinds.map(async ([name, clients, pauseMs, expected, once]) => {
      const counts: Record<string, number> = {};
      const repeat = async () => {
        while (!over.signal.aborted) {
          const seen = await once().catch(String);
          counts[seen] = (counts[seen] ?? 0) + 1;
          await Bun.sleep(pauseMs);
        }
      };

      await Promise.all(Array.from({ length: clients }, repeat));
      console.log(`${name}: ${JSON.stringify(counts)}`);
      const unexpected = Object.keys(counts).filter(
        (seen) => !expected.test(seen) && !seen.startsWith("503/"),
      );

      return unexpected.map((seen) => `${name}: ${seen}`);
    });

    // A tenth of the time warms it up.
    await Bun.sleep(SECONDS * 100);
    const first = await meanMemory(pid, SECONDS * 100);
    await Bun.sleep(SECONDS * 800);

    const last = await meanMemory(pid, SECONDS * 100);
    over.abort();
    const { responses, unanswered, wrong } = await good.stop();
    expect((await Promise.all(odd)).flat()).toEqual([]);

    console.log(`good plants: ${JSON.stringify(responses)}`);
    const [firstMebibytes, lastMebibytes] = [first, last].map((bytes) =>
      Math.round(bytes / 2 ** 20),
    );
    console.log(`memory: ${firstMebibytes} MiB in the first tenth, ${lastMebibytes} in the last`);

    expect({ unanswered, wrong }).toEqual({ unanswered: 0, wrong: 0 });

    const { "200": stored = 0, "409/4091": taken = 0 } = responses;
    expect(
      Object.keys(responses).filter((seen) => !/^(?:200|409\/4091|503\/\d+)$/.test(seen)),
    ).toEqual([]);
    expect(1 - (stored + taken) / good.answered()).toBeLessThanOrEqual(REFUSED_SHARE_BOUND);

    const limit = performance.now() + CLOSE_MS;
    while (descriptors() - before > DESCRIPTOR_BOUND && performance.now() < limit)
      await Bun.sleep(500);
    expect(descriptors() - before).toBeLessThanOrEqual(DESCRIPTOR_BOUND);
    expect(last - first).toBeLessThanOrEqual(MEMORY_BOUND);
    expect(await stop(server)).toBe(0);
    expect(ledger.acknowledgements()).toBeGreaterThan(0);

    const size = `${SECONDS} s, ${ledger.attempts()} sent, ${ledger.acknowledgements()} acknowledged`;
    expect(printed("soak", size, ledger.judge(disk.database))).toEqual(INTACT);
  },
  (1.1 * SECONDS + 180) * 1_000,
);

/** What a process holds, in bytes, on the average of some milliseconds. */
async function meanMemory(pid: number, milliseconds: number): Promise<number> {
  const samples: number[] = [];
  for (
    const end = performance.now() + milliseconds;
    performance.now() < end;
    await Bun.sleep(200)
  ) {
    samples.push(memoryOf(pid).now);
  }

  return samples.reduce((sum, sample) => sum + sample, 0) / samples.length;
}

const PLANT = jsonOf(fern());

/**
 * Clients that each send one request again and again; what may come of it, beside a 503, is in
 * `expected`.
 */
type Kind = readonly [
  name: string,
  clients: number,
  pauseMs: number,
  expected: RegExp,
  once: () => Promise<string>,
];

/** What may come of a good plant. */
const STORED = /^(?:200|409\/4091)$/;

/** Clients of every bad kind, and good ones that are odd. Each request has a connection of its own. */
function oddClients(
  url: string,
  ledger: Ledger,
  next: () => NewPlant,
  random: () => number,
  jwts: Awaited<ReturnType<typeof identityProvider>>,
): readonly Kind[] {
  const ask = (bytes: string | Uint8Array) =>
    onConnection(url, (connection) => connection.request(bytes));

  /** Sends a plant, tells the ledger, and says what came of it. */
  const store = async (send: (plant: NewPlant) => Promise<string>) => {
    const plant = next();
    ledger.attempt(plant);
    const seen = await send(plant);
    if (seen === "200") ledger.acknowledge(plant);
    return seen === "409/4091" && !ledger.hasRival(plant) ? "409 without a rival" : seen;
  };

  const post = (body: string, token?: string) => ask(postBytes(body, token));
  const storeSlowly = (plant: NewPlant) =>
    onConnection(url, (connection) => sendSlowly(connection, postBytes(plant)));
  const authorized = `\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`;

  return [
    ["an unknown token", 4, 10, /^401\/4012$/, () => post(PLANT, `unknown${random()}`)],
    [
      "no token",
      1,
      10,
      /^401\/4011$/,
      () => ask(postBytes(PLANT).replace(/Authorization.*\r\n/, "")),
    ],
    ["a forged JWT", 4, 10, /^401\/4012$/, async () => post(PLANT, await jwts.forged())],
    [
      "a new JWT",
      2,
      20,
      STORED,
      () => store(async (plant) => ask(postBytes(plant, await jwts.valid()))),
    ],
    ["bad JSON", 2, 10, /^400\/4001$/, () => post('{"id": 1, "name": "Fern"')],
    ["a wrong shape", 2, 10, /^400\/4002$/, () => post('{"id": "1", "name": null}')],
    ["deep nesting", 1, 20, /^400\/4001$/, () => post("[".repeat(30_000))],
    ["a huge body", 1, 50, /^413\/4131$/, () => post("x".repeat(1_000_000))],
    ["a huge chunked body", 1, 50, /^413\/4131$/, () => ask(chunked("x".repeat(500_000), 50_000))],
    ["small chunks", 2, 20, STORED, () => store((plant) => ask(chunked(jsonOf(plant), 512)))],
    ["a slow body", 16, 0, STORED, () => store(storeSlowly)],
    ["a reset in a body", 4, 20, /^none$/, () => resetInBody(url)],
    ["never reading", 2, 500, /^none$/, async () => resetAfter(2_000, await neverReading(url))],
    ["junk", 2, 10, /^(?:none|4\d\d|505)$/, () => sendJunk(url, random)],
    [
      "1,500 parameters",
      1,
      20,
      /^404\/4041$/,
      () => ask(getBytes(`/plant?${"a=1&".repeat(1_500)}`)),
    ],
    ["a scrape", 2, 200, /^200$/, () => ask(getBytes("/metrics").replace("\r\n\r\n", authorized))],
    ["/livez", 1, 50, /^200$/, () => ask(getBytes("/livez"))],
    ["/readyz", 1, 100, /^200$/, () => ask(getBytes("/readyz"))],
  ];
}

/** An identity provider, its JWTs and forged ones, to the end of the scope. */
async function identityProvider() {
  const key = await signingKey("EdDSA");
  const forger = await signingKey("EdDSA", key.kid);
  const provider = jwksServer(key);

  function jwtBy(signer: typeof key): Promise<string> {
    const exp = Math.floor(Date.now() / 1_000) + 600;
    const claims = { iss: ISSUER, aud: AUDIENCE, exp, jti: crypto.randomUUID() };
    return signed(signer, claims);
  }

  return {
    /** The settings of a server that accepts the valid ones. */
    env: { AUTH_JWKS_URL: provider.url.href, AUTH_ISSUER: ISSUER, AUTH_AUDIENCE: AUDIENCE },
    valid: () => jwtBy(key),
    forged: () => jwtBy(forger),
    [Symbol.asyncDispose]: () => provider[Symbol.asyncDispose](),
  };
}

/** Status and error number, the status only of a response without a body, "none", or "hung". */
async function onConnection(
  url: string,
  send: (connection: Connection) => Promise<WireResponse | undefined>,
  timeoutMs = HANG_MS,
): Promise<string> {
  const connection = await connect(url);
  const seen = await withDeadline(send(connection), timeoutMs, () => "hung" as const);
  connection.close();
  if (seen === undefined) return "none";
  if (seen === "hung") return "hung";
  return seen.body === "" ? String(seen.status) : verdictOf(seen);
}

/**
 * A `POST /plants` with its body in chunks of so many bytes. Not as text: a chunk may end within a
 * character.
 */
function chunked(body: string, bytes: number): Buffer {
  return wireBytes(goodRequest(TOKEN, body), { chunkSizes: [bytes] });
}

/** In twenty pieces, for about a second. */
async function sendSlowly(
  connection: Connection,
  request: string,
): Promise<WireResponse | undefined> {
  const bytes = Buffer.from(request);
  const size = Math.ceil(bytes.length / 20);
  for (let at = 0; at < bytes.length; at += size) {
    connection.send(bytes.subarray(at, at + size));
    await Bun.sleep(50);
  }
  return connection.response();
}

async function resetInBody(url: string): Promise<string> {
  const connection = await connect(url);
  connection.send(postBytes(PLANT).slice(0, -5));
  return resetAfter(5, connection);
}

async function resetAfter(ms: number, connection: Pick<Connection, "close">): Promise<string> {
  await Bun.sleep(ms);
  connection.close("reset");
  return "none";
}

/** Bun's own parser responds without a body, waits for more, or closes. */
async function sendJunk(url: string, random: () => number): Promise<string> {
  const bytes = Uint8Array.from({ length: 1 + random() * 200 }, () => random() * 256);
  const request =
    random() < 0.5 ? bytes : Buffer.concat([Buffer.from("POST /plants HTTP/1.1\r\n"), bytes]);
  const seen = await onConnection(url, (connection) => connection.request(request), JUNK_MS);
  return seen === "hung" ? "none" : seen;
}
