import * as fc from "fast-check";
import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { type Framing, randomFrom, wireBytes } from "../support/load.ts";
import { mostly } from "../support/json_text.ts";
import { judgeBody, judgeRequest, type OracleOptions } from "../support/oracle.ts";
import { anyRequest } from "../support/requests.ts";

/** A request as bytes, and what the oracle says of it. */
export interface FuzzCase {
  readonly bytes: Buffer;
  /** Status and error number, "200" for a plant that can be stored, or "any" where the HTTP itself is corrupt. */
  readonly expected: string;
  /** The plant that a 200 would store: damage can make good what was wrong before the body. */
  readonly plant?: NewPlant | undefined;
}

/** The program under test has its own default for the limit. */
const OPTIONS: OracleOptions = { token: TOKEN, maxBodyBytes: 65_536 };

/** An endless source of requests: good ones, bad ones, and damaged ones. The same seed gives the same ones. */
export function* fuzzCases(seed: number): Generator<FuzzCase, never> {
  const random = randomFrom(seed);
  for (;;) yield* fc.sample(fuzzCase, { numRuns: 500, seed: Math.floor(random() * 2 ** 31) });
}

const framing: fc.Arbitrary<Framing> = fc.record({
  host: mostly("localhost", fc.constantFrom("x", "a.example:80", "", "[::1]", ":1", "x".repeat(300)), 2),
  isLowerCase: fc.boolean(),
  chunkSizes: mostly<number[]>(
    [],
    fc.array(fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 70_000 })), {
      minLength: 1,
      maxLength: 3,
    }),
    2,
  ),
});

const wholeCase: fc.Arbitrary<FuzzCase> = fc.tuple(anyRequest(OPTIONS), framing).map(([request, framing]) => {
  const [judged, plant] = [judgeRequest(request, OPTIONS), judgeBody(request.body)];
  return {
    bytes: wireBytes(request, framing),
    expected: "error" in judged ? `${judged.status}/${judged.error}` : "200",
    plant: "error" in plant ? undefined : plant,
  };
});

/** What happens to the head of a request, from a place in it on. */
interface Damage {
  readonly at: number;
  readonly kind: "insert" | "overwrite" | "delete" | "repeat" | "cut" | "replace all" | "insert syntax";
  readonly garbage: Uint8Array;
  readonly count: number;
  readonly syntax: string;
}

const damage: fc.Arbitrary<Damage> = fc.record({
  at: fc.nat(),
  kind: fc.constantFrom("insert", "overwrite", "delete", "repeat", "cut", "replace all", "insert syntax"),
  garbage: fc.uint8Array({ maxLength: 8 }),
  count: fc.integer({ min: 1, max: 40 }),
  syntax: fc.constantFrom("\r\n", "\n", "\0", ":", " ", "Content-Length: 5\r\n", "\r\nTransfer-Encoding: x\r\n"),
});

/** A seventh is corrupt before the body. What a 200 to it would store is still known. */
const fuzzCase: fc.Arbitrary<FuzzCase> = fc
  .tuple(wholeCase, mostly<Damage | undefined>(undefined, damage, 6))
  .map(([whole, damage]) =>
    damage === undefined ? whole : { ...whole, expected: "any", bytes: damaged(whole.bytes, damage) },
  );

function damaged(bytes: Buffer, { at, kind, garbage, count, syntax }: Damage): Buffer {
  const headBytes = bytes.indexOf("\r\n\r\n") + 4;
  const [before, after] = [bytes.subarray(0, at % headBytes), bytes.subarray(at % headBytes)];
  const parts = {
    insert: [before, garbage, after],
    overwrite: [before, garbage, after.subarray(garbage.length)],
    delete: [before, after.subarray(1 + (count % 8))],
    repeat: [before, before.subarray(-count), after],
    cut: [before],
    "replace all": [garbage, garbage, garbage],
    "insert syntax": [before, Buffer.from(syntax), after],
  };
  return Buffer.concat(parts[kind]);
}
