import * as fc from "fast-check";

import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { mostly, oneOf } from "../support/json_values.ts";
import { type Ledger, makeLedger } from "../support/ledger.ts";
import {
  connect,
  type Connection,
  type Framing,
  randomFrom,
  verdictOf,
  wireBytes,
  type WireResponse,
} from "../support/load.ts";
import { judgeBody, judgeRequest, type OracleOptions } from "../support/oracle.ts";
import { returned } from "../support/plants.ts";
import { anyRequest } from "../support/requests.ts";

/** A request as bytes, and what the oracle says of it. */
export interface FuzzCase {
  readonly bytes: Buffer;
  /**
   * Status and error number, "200" for a plant that can be stored, or "any" where the HTTP itself
   * is corrupt.
   */
  readonly expected: string;
  /** The plant that a 200 would store: damage can make good what was wrong before the body. */
  readonly plant?: NewPlant | undefined;
}

/** The program under test has its own default for the limit. */
const OPTIONS: OracleOptions = { token: TOKEN, maxBodyBytes: 65_536 };

/**
 * An endless source of requests: good ones, bad ones, and damaged ones. The same seed gives the
 * same ones.
 */
export function* fuzzCases(seed: number): Generator<FuzzCase, never> {
  const random = randomFrom(seed);
  for (;;) yield* fc.sample(fuzzCase, { numRuns: 500, seed: Math.floor(random() * 2 ** 31) });
}

const framing: fc.Arbitrary<Framing> = fc.record({
  host: mostly(
    "localhost",
    fc.constantFrom("x", "a.example:80", "", "[::1]", ":1", "x".repeat(300)),
    2,
  ),
  isLowerCase: fc.boolean(),
  chunkSizes: mostly<number[]>(
    [],
    fc
      .array(fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 70_000 })), {
        minLength: 1,
        maxLength: 3,
      })
      // Hundreds of small ones are refused.
      .map((sizes) => [...sizes, 1_000]),
    2,
  ),
});

const wholeCase: fc.Arbitrary<FuzzCase> = fc
  .tuple(anyRequest(OPTIONS), framing)
  .map(([request, framing]) => {
    const judged = judgeRequest(request, OPTIONS);
    const plant = judgeBody(request.body);
    return {
      bytes: wireBytes(request, framing),
      expected: "error" in judged ? `${judged.status}/${judged.error}` : "200",
      plant: "error" in plant ? undefined : plant,
    };
  });

/**
 * A request whose head is damaged from a place in it on. What a 200 to it would store is still
 * known.
 */
const damagedCase: fc.Arbitrary<FuzzCase> = fc
  .record({
    whole: wholeCase,
    at: fc.nat(),
    kind: fc.constantFrom(
      "insert",
      "overwrite",
      "delete",
      "repeat",
      "cut",
      "replace all",
      "insert syntax",
    ),
    garbage: fc.uint8Array({ maxLength: 8 }),
    count: fc.integer({ min: 1, max: 40 }),
    syntax: fc.constantFrom(
      "\r\n",
      "\n",
      "\0",
      ":",
      " ",
      "Content-Length: 5\r\n",
      "\r\nTransfer-Encoding: x\r\n",
    ),
  })
  .map(({ whole, at, kind, garbage, count, syntax }) => {
    const headBytes = whole.bytes.indexOf("\r\n\r\n") + 4;
    const before = whole.bytes.subarray(0, at % headBytes);
    const after = whole.bytes.subarray(at % headBytes);

    const parts = {
      insert: [before, garbage, after],
      overwrite: [before, garbage, after.subarray(garbage.length)],
      delete: [before, after.subarray(1 + (count % 8))],
      repeat: [before, before.subarray(-count), after],
      cut: [before],
      "replace all": [garbage, garbage, garbage],
      "insert syntax": [before, Buffer.from(syntax), after],
    };

    return { ...whole, expected: "any", bytes: Buffer.concat(parts[kind]) };
  });

const fuzzCase = oneOf([6, wholeCase], [1, damagedCase]);

const CONNECTIONS = 32;
/** A damaged request may be an unfinished one. It is given up after this long, in milliseconds. */
const DAMAGED_TIMEOUT_MS = 200;
/** Any other request that has no response after this long, in milliseconds, hangs. */
const HANG_TIMEOUT_MS = 20_000;

/**
 * Sends the cases to any server of the app. Returns what it may have stored, and what a rival plant
 * kept it from.
 */
export async function sendFuzzCases(url: string, cases: Iterator<FuzzCase>) {
  const ledger = makeLedger();
  const unexpected: string[] = [];
  const counts: Record<string, number> = {};
  const taken: NewPlant[] = [];

  async function client(): Promise<void> {
    let connection: Connection | undefined;
    while (unexpected.length < 10) {
      const { value: fuzzCase, done } = cases.next();
      if (done === true) break;
      connection =
        connection === undefined || connection.isClosed() ? await connect(url) : connection;

      const { seen, isLast } = await respondTo(connection, fuzzCase);
      counts[seen] = (counts[seen] ?? 0) + 1;
      remember(fuzzCase, seen, ledger, taken);
      if (!isExpected(fuzzCase, seen)) unexpected.push(describe(fuzzCase, seen));

      // After damaged HTTP nobody knows where on the connection the next request would begin.
      if (fuzzCase.expected === "any") connection.close("reset");
      if (fuzzCase.expected === "any" || isLast) connection = undefined;
    }

    connection?.close();
  }

  await Promise.all(Array.from({ length: CONNECTIONS }, client));
  return { ledger, unexpected, counts, taken };
}

/**
 * Status and number, "none" where the connection ends or, for damaged HTTP, nothing comes; and
 * whether it closes now.
 */
async function respondTo(connection: Connection, { bytes, expected, plant }: FuzzCase) {
  // To bytes that cannot be a body, Bun's own 400 follows within a response of ours that lingers.
  const response = connection.request(bytes).catch((error: unknown) => {
    if (expected !== "any") throw error;
    return undefined;
  });
  const limit = Bun.sleep(expected === "any" ? DAMAGED_TIMEOUT_MS : HANG_TIMEOUT_MS).then(
    () => undefined,
  );
  const first = await Promise.race([response, limit]);

  if (first === undefined) return { seen: "none", isLast: true };
  // RFC 9112, section 2.2: Bun's own parser closes with a response that has no body. Nor has a
  // redirect: damage can shorten a path to "/".
  if (first.body === "") return { seen: `${first.status} without a body`, isLast: true };

  // Deno adds one of its own to ours: "close, close".
  const isLast = first.headers.get("connection")?.includes("close") === true;
  return { seen: verdictOf(first) + wrongEcho(first, plant), isLast };
}

function wrongEcho({ status, body }: WireResponse, plant: NewPlant | undefined): string {
  if (status !== 200 || plant === undefined) return "";
  return Bun.deepEquals(JSON.parse(body), returned(plant)) ? "" : ` with ${body}`;
}

/**
 * Only plants with a 200, or without a response, may be in the file. A response without a body is
 * Bun's, to bytes that followed the request: the plant's own response was lost with the
 * connection.
 */
function remember({ plant }: FuzzCase, seen: string, ledger: Ledger, taken: NewPlant[]): void {
  if (plant === undefined) return;
  if (seen === "200" || seen === "none" || seen.endsWith("without a body")) ledger.attempt(plant);
  if (seen === "200") ledger.acknowledge(plant);
  if (seen === "409/4091") taken.push(plant);
}

function isExpected({ expected, plant }: FuzzCase, seen: string): boolean {
  if (expected !== "any") return seen === expected || (expected === "200" && seen === "409/4091");
  if (seen.startsWith("200")) return seen === "200" && plant !== undefined;
  // A request line that Bun cannot make sense of is a version that it does not know.
  return !seen.startsWith("5") || seen === "505 without a body";
}

function describe({ bytes, expected }: FuzzCase, seen: string): string {
  return `expected ${expected}, got ${seen}: ${JSON.stringify(bytes.toString("latin1").slice(0, 2_000))}`;
}
