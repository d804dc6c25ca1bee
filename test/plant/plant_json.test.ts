import { expect, test } from "bun:test";
import { memoryStore } from "../../src/database/memory.ts";
import { parsePlant } from "../../src/plant/plant_json.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { EXACT_IDS, NOT_IDS } from "../support/cases.ts";
import { readError, readPlant } from "../support/responses.ts";
import { postPlant, testApp } from "../support/app.ts";

const MAX = 9223372036854775807n;

// Ids that count

test.each(EXACT_IDS)("the id %s is kept exactly beside numbers that are not integers", async (source, id) => {
  expect(await idStoredFor(`{"a": 0.5, "id":${source},"name":"Fern", "z": [1e400, {"id": 1.5}]}`, id)).toBe(true);
});

// Ids that do not

test.each(NOT_IDS)("an id that is %s is refused: %s", async (_what, source) => {
  for (const body of [
    `{"id": ${source}, "name": "Fern"}`,
    `{"x": 0.5, "id":${source} ,"name":"Fern"}`,
    `{"name":"Fern","id":${source}}`,
  ]) {
    expect(await readError(await testApp().fetch(postPlant(body)))).toEqual({
      status: 400,
      error: 4002,
      message: "`id` must be an integer from -9223372036854775808 to 9223372036854775807",
    });
  }
});

// Where the id stands

test.each([
  ["the last of repeated members", `{"id": 1, "id": 2.5, "id": ${MAX}, "name": "Fern"}`],
  ["an escaped key", String.raw`{"\u0069d": 9223372036854775807, "name": "Fern"}`],
  ["a wholly escaped key", String.raw`{"\u0069\u0064": 9223372036854775807, "name": "Fern"}`],
  ["an escaped key after a plain one", String.raw`{"id": 1, "\u0069d": 9223372036854775807, "name": "Fern"}`],
  ["a plain key after an escaped one", String.raw`{"\u0069d": 1, "id": 9223372036854775807, "name": "Fern"}`],
  ["a nested id after it", `{"id": ${MAX}, "name": "Fern", "x": {"id": 1}, "y": [{"id": 2}]}`],
  ["a nested id before it", `{"x": {"id": 1}, "y": [{"id": 2}], "id": ${MAX}, "name": "Fern"}`],
  ["strings that look like it", `{"x": "\\"id\\": 1", "y": "id", "id": ${MAX}, "name": "Fern", "z": "id\\\\"}`],
  ["a name that is its key", `{"id": ${MAX}, "z": "id", "a": ["id", 1], "name": "Fern"}`],
  ["brackets in strings", `{"x": "}]", "id": ${MAX}, "y": "{[", "name": "Fern"}`],
  ["similar keys", `{"ID": 1, "id ": 2, "": 3, "i\\u0064x": 4, "id": ${MAX}, "ıd": 5, "name": "Fern"}`],
  ["much white space", `\r\n\t {\t"id"\n:\r ${MAX}\t,\n"name" : "Fern"}\n`],
  ["no white space", `{"id":${MAX},"name":"Fern"}`],
  ["a prototype after it", `{"id": ${MAX}, "name": "Fern", "__proto__": {"id": 1}}`],
])("the exact id is found with %s", async (_what, body) => {
  expect(await idStoredFor(body, MAX)).toBe(true);
});

test("a repeated id counts as the last one says, also where that is none", async () => {
  for (const last of ['"2"', "2.5", "null", "9223372036854775808", "1.00000000000000000001"]) {
    const response = await testApp().fetch(postPlant(`{"id": 1, "name": "Fern", "id": ${last}}`));
    expect(await readError(response)).toMatchObject({ status: 400, error: 4002 });
  }
  expect(await idStoredFor('{"id": "2", "id": 2.5, "id": 9223372036854775808, "id": 2, "name": "Fern"}', 2n)).toBe(
    true,
  );
});

test.each([
  ["its prototype", '{"__proto__": {"id": 1, "name": "Fern"}}'],
  ["its prototype, escaped", String.raw`{"\u005f_proto__": {"id": 1, "name": "Fern"}}`],
  ["its constructor", '{"constructor": {"prototype": {"id": 1, "name": "Fern"}}}'],
  ["an array around it", '[{"id": 1, "name": "Fern"}]'],
  ["an object around it", '{"plant": {"id": 1, "name": "Fern"}}'],
  ["keys in another case", '{"ID": 1, "Name": "Fern"}'],
])("a plant does not take its members from %s", async (_what, body) => {
  expect(await readError(await testApp().fetch(postPlant(body)))).toMatchObject({ status: 400, error: 4002 });
});

// Depth and length

/** With the level around it, as deep as may be. */
const DEEP = "[".repeat(99) + "]".repeat(99);

test("a plant of 100 levels is stored, and its id found beside them", async () => {
  expect(await idStoredFor(`{"x": ${DEEP}, "id": ${MAX}, "name": "Fern"}`, MAX)).toBe(true);
  expect(await idStoredFor(`{"id": 1.0, "name": "Fern", "x": "${"[".repeat(200)}", "y": ${DEEP}}`, 1n)).toBe(true);
});

test.each([
  ["an unknown member", `{"id": 1, "name": "Fern", "x": [${DEEP}]}`],
  ["the id", `{"id": [${DEEP}], "name": "Fern"}`],
  ["objects", `{"id": 1, "name": "Fern", "x": ${'{"x":'.repeat(100)}1${"}".repeat(100)}}`],
  ["the body itself", "[".repeat(101) + "]".repeat(101)],
  ["what is no JSON", "[".repeat(60_000)],
])("a body of more than 100 levels is refused: %s", async (_what, body) => {
  expect(await readError(await testApp().fetch(postPlant(body)))).toEqual({
    status: 400,
    error: 4001,
    message: "the body must not be nested deeper than 100 levels",
  });
});

/** At a million characters, anything but linear time runs into the runner's time limit. */
const LONG = 1_000_000;

test.each([
  ["digits", `{"id": 1${"0".repeat(LONG)}}`],
  ["nines", `{"id": -${"9".repeat(LONG)}}`],
  ["digits of a fraction", `{"id": 1.${"3".repeat(LONG)}}`],
  ["digits of an exponent", `{"id": 1e${"9".repeat(LONG)}}`],
  ["digits of a negative exponent", `{"id": 10e-${"9".repeat(LONG)}}`],
])("parsePlant() refuses an id of very many %s in linear time", (_what, text) => {
  expect(() => parsed(text)).toThrow(/^`id` must be an integer from .*; `name` is missing$/);
});

// Fewer, so that a run in quadratic time ends at all.
const ZEROS = "0".repeat(LONG / 5);

test.each([
  ["zeros before the last digit", `"id": 0.${ZEROS}1e${ZEROS.length + 1}`],
  ["zeros of a fraction", `"id": 1.${"0".repeat(LONG)}`],
  ["zeros that an exponent takes back", `"id": 1${"0".repeat(LONG)}e-${LONG}`],
  ["zeros of an exponent", `"id": 1e${"0".repeat(LONG)}`],
  ["keys", `${'"id": "id", "x": 0.5, '.repeat(LONG / 20)}"id": 1.0`],
  ["repeated ids", `${'"id": 1.5, '.repeat(LONG / 10)}"id": 1.0`],
])("parsePlant() reads an exact id beside very many %s in linear time", (_what, members) => {
  expect(parsed(`{"name": "Fern", ${members}}`)).toEqual({ id: 1n, name: "Fern" });
});

function parsed(text: string): NewPlant {
  return parsePlant(new TextEncoder().encode(text));
}

/** Whether this body, once stored, holds this id: then the same plant is there, and another one conflicts. */
async function idStoredFor(body: string, id: bigint): Promise<boolean> {
  const store = memoryStore();
  const app = testApp({ plants: groupCommit(store) });
  expect(await readPlant(await app.fetch(postPlant(body)))).toEqual({ status: 200, body: { name: "Fern" } });
  const [outcome] = await store.add([{ id, name: "Fern" }], { timeoutMs: 1_000 });
  return outcome === "present";
}
