import { expect, test } from "bun:test";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import * as fc from "fast-check";
import { memoryStore } from "../src/adapters/memory.ts";
import { parseExactJson } from "../src/exact_json.ts";
import { groupCommit } from "../src/group_commit.ts";
import type { NewPlant } from "../src/plant.ts";
import { checkPlant, NewPlantSchema } from "../src/plant_schema.ts";
import type { AddOutcome } from "../src/plant_store.ts";
import { readError, readPlant } from "./support/responses.ts";
import { testApp, TOKEN } from "./support/app.ts";
import { bodyBytes, bodyText, numberText, storableText, stringText } from "./support/json_text.ts";
import { oracle, type Prediction, type WireRequest } from "./support/oracle.ts";

// A failure prints its seed and path: PROPERTY_SEED runs it again, PROPERTY_RUNS (a factor) looks further.
const { PROPERTY_SEED, PROPERTY_RUNS = "1" } = process.env;

const LIMIT = 400;

const GOOD = { path: "/plants", method: "POST", authorization: `Bearer ${TOKEN}`, contentType: "application/json" };

test("POST /plants takes an id as the oracle does, however it is written", async () => {
  const requests = fc.tuple(numberText, storableText).map(([id, name]) => posting(`{"id": ${id}, "name": ${name}}`));
  await holds(requests, 35);
});

test("POST /plants takes a name and a tag as the oracle does, however they are written", async () => {
  const requests = fc
    .tuple(stringText, stringText, fc.boolean())
    .map(([name, tag, tagged]) => posting(`{"id": 1, "name": ${name}${tagged ? `, "tag": ${tag}` : ""}}`));
  await holds(requests, 35);
});

test("POST /plants takes a body as the oracle does, whatever its members and their order", async () => {
  await holds(bodyText.map(posting), 50);
});

test("POST /plants takes bytes as the oracle does, whatever they are", async () => {
  await holds(
    bodyBytes.map((body) => ({ ...GOOD, body })),
    35,
  );
});

test("POST /plants takes bodies around the limit as the oracle does", async () => {
  await holds(sizedBody().map(posting), 20);
});

test("the app takes a request as the oracle does, whatever its path, method and headers", async () => {
  await holds(anyRequest(), 60);
});

test("a body in chunks is taken as a whole one is, wherever it is cut", async () => {
  const property = fc.asyncProperty(bodyBytes, fc.array(fc.nat(), { maxLength: 5 }), async (body, cuts) => {
    const [whole, cut] = [testApp({ maxBodyBytes: LIMIT }), testApp({ maxBodyBytes: LIMIT })];
    const responses = [await whole.fetch(made(GOOD, body)), await cut.fetch(made(GOOD, inChunks(body, cuts)))];
    const [one, other] = await Promise.all(
      responses.map(async (response) => `${response.status} ${await response.text()}`),
    );
    expect(other).toEqual(one);
  });
  await check(property, 40);
});

test("parseExactJson() differs from JSON.parse in nothing but the id", () => {
  const property = fc.property(bodyText, (text) => {
    const plain = outcomeOf(() => JSON.parse(text));
    expect(outcomeOf(() => parseExactJson(text))).toEqual(plain);
  });
  fc.assert(property, settings(300));
});

test("checkPlant() takes the values that the schema of the OpenAPI document takes, and no others", () => {
  const schema = TypeCompiler.Compile(NewPlantSchema);
  const property = fc.property(plantLike(), (value) => {
    const outcome = outcomeOf(() => checkPlant(value));
    const { id, name, tag } = Object(value) as Record<string, unknown>;
    if (!schema.Check(value)) expect(outcome).toMatchObject({ code: "invalid_plant" });
    else
      expect(checkPlant(value)).toEqual({
        id: BigInt(id as number),
        name,
        ...(tag !== undefined && { tag }),
      } as NewPlant);
  });
  fc.assert(property, settings(1_000));
});

test("groupCommit() gives each plant the outcome that it would have had alone", async () => {
  const plants = fc.array(fc.record({ id: fc.bigInt({ min: 0n, max: 3n }), name: fc.constantFrom("Fern", "Ivy") }), {
    maxLength: 30,
  });
  const property = fc.asyncProperty(plants, async (plants: NewPlant[]) => {
    const alone = memoryStore();
    const expected: AddOutcome[] = [];
    for (const plant of plants) expected.push(...(await alone.add([plant], { timeoutMs: 1_000 })));
    const commits = groupCommit(memoryStore(), { defer: queueMicrotask });
    expect(await Promise.all(plants.map((plant) => commits.add(plant)))).toEqual(expected);
    await commits.drain(1_000);
  });
  await check(property, 100);
});

test("the generators make every response that a client can cause", () => {
  const { predict } = oracle(TOKEN, LIMIT);
  const requests = fc.sample(fc.oneof(anyRequest(), sizedBody().map(posting)), { numRuns: 3_000, seed: 1 });
  const responses = new Set(
    requests.map(predict).map((prediction) => ("error" in prediction ? prediction.error : 200)),
  );
  expect([...responses].toSorted()).toEqual([200, 4001, 4002, 4011, 4012, 4041, 4051, 4091, 4131, 4151]);
});

/** Sends requests to a fresh app one after the other, and compares every response with the oracle's. */
async function holds(requests: fc.Arbitrary<WireRequest>, runs: number): Promise<void> {
  const property = fc.asyncProperty(
    fc.array(requests, { minLength: 1, maxLength: 25, size: "max" }),
    async (requests) => {
      const store = memoryStore();
      const app = testApp({ plants: groupCommit(store, { defer: queueMicrotask }), maxBodyBytes: LIMIT });
      const { predict, stored } = oracle(TOKEN, LIMIT);
      for (const request of requests) await compare(await app.fetch(made(request, request.body)), predict(request));
      const kept = Array.from(stored, ([id, plant]) => ({ id, ...plant }));
      expect(await store.add(kept, { timeoutMs: 1_000 })).toEqual(kept.map(() => "present"));
    },
  );
  await check(property, runs);
}

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
  return { ...GOOD, body: new TextEncoder().encode(body) };
}

function made(
  { path, method, authorization, contentType, contentEncoding }: Omit<WireRequest, "body">,
  body: BodyInit,
) {
  const headers = new Headers();
  if (authorization !== undefined) headers.set("authorization", authorization);
  if (contentType !== undefined) headers.set("content-type", contentType);
  if (contentEncoding !== undefined) headers.set("content-encoding", contentEncoding);
  return new Request(
    `http://localhost:3000${path}`,
    method === "GET" ? { method, headers } : { method, headers, body },
  );
}

function inChunks(bytes: Uint8Array, cuts: readonly number[]): ReadableStream<Uint8Array> {
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].toSorted((a, b) => a - b);
  const chunks = ends.map((end, i) => bytes.slice(ends[i - 1] ?? 0, end));
  return new ReadableStream({
    pull(controller) {
      const chunk = chunks.shift();
      if (chunk === undefined) controller.close();
      else controller.enqueue(chunk);
    },
  });
}

/** Values that JSON can give, near a plant: members that are good, bad, of another type or absent. */
function plantLike(): fc.Arbitrary<unknown> {
  const text = fc.oneof(
    fc.string({ unit: "binary" }),
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
    id: mostly<unknown>(1, fc.oneof(number, number, other)),
    name: mostly<unknown>("Fern", fc.oneof(text, text, other)),
    tag: fc.oneof(text, text, other),
  };
  return fc.oneof({ weight: 9, arbitrary: fc.record(members, { requiredKeys: [] }) }, { weight: 1, arbitrary: other });
}

/** The value or the fact that there is none, without the id of an object. */
function outcomeOf(parse: () => unknown): unknown {
  try {
    const value = parse();
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value, id: 0 } : value;
  } catch (error) {
    return error instanceof SyntaxError ? SyntaxError : error;
  }
}

function anyRequest(): fc.Arbitrary<WireRequest> {
  return fc.record({
    path: mostly(GOOD.path, fc.constantFrom("/plant", "/plants/", "/Plants", "/plants/1", "/__proto__", "//plants")),
    method: mostly(GOOD.method, fc.constantFrom("GET", "PUT", "DELETE", "PATCH", "OPTIONS")),
    authorization: mostly(GOOD.authorization, fc.oneof(fc.constant(undefined), goodCredentials(), badCredentials())),
    contentType: mostly(GOOD.contentType, fc.oneof(fc.constant(undefined), mediaType(), headerValue())),
    contentEncoding: mostly(undefined, fc.constantFrom("gzip", "identity", "br")),
    body: bodyBytes,
  });
}

/** White space up to some bytes below or above the limit. */
function sizedBody(): fc.Arbitrary<string> {
  return fc
    .tuple(bodyText, fc.integer({ min: LIMIT - 5, max: LIMIT + 5 }))
    .map(([text, size]) => text + " ".repeat(Math.max(0, size - Buffer.byteLength(text))));
}

function mostly<Value>(usual: Value, other: fc.Arbitrary<Value>): fc.Arbitrary<Value> {
  return fc.oneof({ weight: 6, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: other });
}

function goodCredentials(): fc.Arbitrary<string> {
  return fc
    .tuple(cased("bearer"), fc.constantFrom(" ", "  ", "     "))
    .map(([scheme, space]) => scheme + space + TOKEN);
}

function badCredentials(): fc.Arbitrary<string> {
  const around = fc.constantFrom(
    "Bearer",
    "Bearer,",
    "Basic",
    "bearer\t",
    `Bearer ${TOKEN},`,
    "",
    "=",
    "é",
    `"`,
    TOKEN,
    "x",
  );
  // Empty: whether that is no credentials or bad ones is nowhere said.
  return fc
    .oneof(
      headerValue(),
      fc.array(around, { minLength: 1, maxLength: 4 }).map((parts) => parts.join(" ").trim()),
    )
    .filter((value) => value !== "");
}

/** A media type that is well formed, in any spelling; at most one charset. */
function mediaType(): fc.Arbitrary<string> {
  const charset = fc.tuple(
    cased("charset"),
    fc.oneof(cased("utf-8"), cased("utf-8"), cased('"utf-8"'), fc.constantFrom("utf-16", '"latin1"', "utf8", "x")),
  );
  const other = fc.tuple(
    fc.constantFrom("x", "profile", "q", "xcharset"),
    fc.constantFrom("1", '"a;charset=x"', '"\\""', "utf-16"),
  );
  const separator = fc.constantFrom(";", "; ", " ; ", ";\t");
  return fc
    .tuple(
      fc.oneof(cased("application/json"), cased("application/json"), fc.constantFrom("text/json", "application/xml")),
      fc.uniqueArray(fc.tuple(separator, fc.oneof(charset, other)), {
        maxLength: 3,
        selector: ([, [name]]) => name.toLowerCase(),
      }),
    )
    .map(([type, parameters]) => type + parameters.map(([separator, pair]) => separator + pair.join("=")).join(""));
}

function cased(text: string): fc.Arbitrary<string> {
  return fc
    .tuple(...Array.from(text, (char) => fc.constantFrom(char, char.toUpperCase())))
    .map((characters) => characters.join(""));
}

/** What HTTP lets through as a header's value, and is no media type and no credentials. */
function headerValue(): fc.Arbitrary<string> {
  const character = fc.oneof(
    fc.integer({ min: 0x20, max: 0x7e }),
    fc.constant(9),
    fc.integer({ min: 0x80, max: 0xff }),
  );
  return fc
    .array(character, { maxLength: 30 })
    .map((codes) => String.fromCharCode(...codes).trim())
    .filter((value) => !/^(application\/json|bearer )/i.test(value));
}
