import { expect, setDefaultTimeout, test } from "bun:test";
import { TypeCompiler } from "elysia/type-system";
import * as fc from "fast-check";
import { memoryStore } from "../../src/database/memory.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { NewPlantSchema } from "../../src/http/plants.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { parsePlant } from "../../src/plant/plant_json.ts";
import type { StoreOutcome } from "../../src/database/database.ts";
import { readError, readPlant } from "../support/responses.ts";
import { fetchRequest, testApp, TOKEN } from "../support/app.ts";
import { bodyBytes, bodyText, numberText, storableText, stringText, mostly } from "../support/json_text.ts";
import { oracle, type Prediction, type WireRequest } from "../support/oracle.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { goodRequest } from "../support/load.ts";
import { anyRequest, requestAtLimit } from "../support/requests.ts";
import { anyCharacter } from "../support/unicode.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// A failure prints its seed and path: PROPERTY_SEED runs it again, PROPERTY_RUNS (a factor) looks further.
const { PROPERTY_SEED, PROPERTY_RUNS = "1" } = process.env;

const OPTIONS = { token: TOKEN, maxBodyBytes: 400 };

test.each<[what: string, requests: fc.Arbitrary<WireRequest>, runs: number]>([
  ["an id, however it is written", fc.tuple(numberText, storableText).map(plantText), 35],
  [
    "a name and a tag, however they are written",
    fc.tuple(fc.constant("1"), stringText, fc.option(stringText, { nil: undefined, freq: 1 })).map(plantText),
    35,
  ],
  ["a body, whatever its members and their order", bodyText.map(posting), 50],
  ["bytes, whatever they are", bodyBytes.map((body) => ({ ...goodRequest(TOKEN), body })), 35],
  ["bodies around the limit", requestAtLimit(OPTIONS), 20],
  ["a request, whatever its path, method and headers", anyRequest(OPTIONS), 60],
])("the app takes %s as the oracle does", async (_what, requests, runs) => {
  const property = fc.asyncProperty(
    fc.array(requests, { minLength: 1, maxLength: 25, size: "max" }),
    async (requests) => {
      const store = memoryStore();
      const { maxBodyBytes } = OPTIONS;
      const app = testApp({ plants: groupCommit(store, { defer: queueMicrotask }), maxBodyBytes });
      const { predict, stored } = oracle(OPTIONS);
      for (const request of requests) await compare(await app.fetch(fetchRequest(request)), predict(request));
      const kept = [...stored.values()];
      expect(await store.add(kept, { timeoutMs: 1_000 })).toEqual(kept.map(() => "present"));
    },
  );
  await check(property, runs);
});

function plantText([id = "", name = "", tag]: readonly (string | undefined)[]): WireRequest {
  return posting(`{"id": ${id}, "name": ${name}${tag === undefined ? "" : `, "tag": ${tag}`}}`);
}

test("a body in chunks is taken as a whole one is, wherever it is cut", async () => {
  const property = fc.asyncProperty(bodyBytes, fc.array(fc.nat(), { maxLength: 5 }), async (body, cuts) => {
    const { maxBodyBytes } = OPTIONS;
    const [whole, cut] = [testApp({ maxBodyBytes }), testApp({ maxBodyBytes })];
    const request = { ...goodRequest(TOKEN), body };
    const responses = [
      await whole.fetch(fetchRequest(request)),
      await cut.fetch(fetchRequest(request, { chunks: cutAt(body, cuts) })),
    ];
    const [one, other] = await Promise.all(
      responses.map(async (response) => `${response.status} ${await response.text()}`),
    );
    expect(other).toEqual(one);
  });
  await check(property, 40);
});

test("parsePlant() takes what the schema of the OpenAPI document takes, if it can be stored exactly, and nothing else", () => {
  const schema = TypeCompiler.Compile(NewPlantSchema);
  const property = fc.property(plantLike(), (value) => {
    const { id, name, tag } = Object(value) as Record<string, unknown>;
    const parse = () => parsePlant(new TextEncoder().encode(jsonOf(value)));
    // A parser of JSON gives a number, however many digits it has.
    const parsed = typeof id === "bigint" ? { ...Object(value), id: Number(id) } : value;
    if (!schema.Check(parsed) || !isInt64(id) || ![name, tag ?? ""].every(isStorable)) {
      expect(parse).toThrow(expect.objectContaining({ code: "invalid_plant" }));
    } else {
      const plant = { id: BigInt(id as number), name, ...(tag !== undefined && { tag }) };
      expect(parse()).toEqual(plant as NewPlant);
    }
  });
  fc.assert(property, settings(1_000));
});

/** Throws if the schema took what is not an integer; so does {@linkcode isStorable} if it took what is not a string. */
function isInt64(id: unknown): boolean {
  const exact = BigInt(id as number);
  return BigInt.asIntN(64, exact) === exact;
}

function isStorable(text: unknown): boolean {
  return (text as string).isWellFormed() && !(text as string).includes("\0");
}

/** A lone surrogate is escaped, and every digit of a `bigint` is written. */
function jsonOf(value: unknown): string {
  const { rawJSON } = JSON as typeof JSON & { rawJSON(text: string): unknown };
  return JSON.stringify(value, (_, member) => (typeof member === "bigint" ? rawJSON(String(member)) : member));
}

test("groupCommit() gives each plant the outcome that it would have had alone", async () => {
  const plants = fc.array(fc.record({ id: fc.bigInt({ min: 0n, max: 3n }), name: fc.constantFrom("Fern", "Ivy") }), {
    maxLength: 30,
  });
  const property = fc.asyncProperty(plants, async (plants: NewPlant[]) => {
    const alone = memoryStore();
    const expected: StoreOutcome[] = [];
    for (const plant of plants) expected.push(...(await alone.add([plant], { timeoutMs: 1_000 })));
    const commits = groupCommit(memoryStore(), { defer: queueMicrotask });
    expect<readonly StoreOutcome[]>(await Promise.all(plants.map((plant) => commits.add(plant)))).toEqual(expected);
    await commits.drain(1_000);
  });
  await check(property, 100);
});

test("the generators make every response that a client can cause", () => {
  const { predict } = oracle(OPTIONS);
  const requests = fc.sample(anyRequest(OPTIONS), { numRuns: 3_000, seed: 1 });
  const responses = new Set(
    requests.map(predict).map((prediction) => ("error" in prediction ? prediction.error : 200)),
  );
  expect([...responses].toSorted()).toEqual([200, 4001, 4002, 4011, 4012, 4041, 4051, 4091, 4131, 4151]);
});

async function compare(response: Response, prediction: Prediction): Promise<void> {
  if (!("error" in prediction)) {
    return expect(await readPlant(response)).toEqual(prediction);
  }
  const { status, error, message } = await readError(response);
  const { faults, ...expected } = prediction;
  expect({ status, error }).toEqual(expected);
  if (faults !== undefined) expect(fieldsIn(message)).toEqual([...faults]);
}

function fieldsIn(message: string): string[] {
  return [...new Set(Array.from(message.matchAll(/`(\w+)`/g), ([, field = ""]) => field))].toSorted();
}

async function check<Values>(property: fc.IAsyncProperty<Values>, runs: number): Promise<void> {
  await fc.assert(property, settings(runs));
}

function settings(runs: number): { numRuns: number; seed?: number } {
  const numRuns = runs * Number(PROPERTY_RUNS);
  return PROPERTY_SEED === undefined ? { numRuns } : { numRuns, seed: Number(PROPERTY_SEED) };
}

function posting(body: string): WireRequest {
  return goodRequest(TOKEN, body);
}

function cutAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].toSorted((a, b) => a - b);
  return ends.map((end, i) => bytes.slice(ends[i - 1] ?? 0, end));
}

/** Values that JSON can give, near a plant: members that are good, bad, of another type or absent. */
function plantLike(): fc.Arbitrary<unknown> {
  const text = fc.oneof(
    fc.string({ unit: anyCharacter }),
    fc.constantFrom("", "Fern", "\0", "Fe\0rn", "\ud800", "\udf31x", "🌱"),
  );
  const number = fc.oneof(
    fc.constantFrom(1, -0, 1.5, Number.NaN, 1e300, 2 ** 53, 2 ** 53 - 1, -(2 ** 53)),
    fc.integer(),
    fc.bigInt({ min: -(2n ** 63n) - 2n, max: -(2n ** 63n) + 2n }),
    fc.bigInt({ min: 2n ** 63n - 3n, max: 2n ** 63n + 1n }),
  );
  const other = fc.oneof(
    fc.constantFrom(null, true, "1"),
    fc.array(text, { maxLength: 2 }),
    fc.object({ maxDepth: 1 }),
  );
  const members = {
    id: mostly<unknown>(1, fc.oneof(number, number, other), 6),
    name: mostly<unknown>("Fern", fc.oneof(text, text, other), 6),
    tag: fc.oneof(text, text, other),
  };
  return fc.oneof({ weight: 9, arbitrary: fc.record(members, { requiredKeys: [] }) }, { weight: 1, arbitrary: other });
}
