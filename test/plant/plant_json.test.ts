import { expect, test } from "bun:test";

import { TypeCompiler } from "elysia/type-system";

import { NewPlantSchema } from "../../src/http/plants.ts";
import { INT64_MAX, type NewPlant } from "../../src/plant/plant.ts";
import { parsePlant } from "../../src/plant/plant_json.ts";
import { EXACT_IDS, NOT_IDS, NOT_JSON } from "../support/cases.ts";

const PLAIN =
  "`id` must be written in plain digits past 9007199254740991, without a point or an exponent";
const ID = "`id` must be an integer from -9223372036854775808 to 9223372036854775807";
const NAME = "`name` must be a string";
const TAG = "`tag` must be a string";
const CHARACTERS = "must not contain U+0000 or a lone surrogate";
const NO_ID = "`id` is missing";
const NO_NAME = "`name` is missing";

/** With the level around it, as deep as may be. */
const DEEP = "[".repeat(99) + "]".repeat(99);

// Ids

test.each(EXACT_IDS)(
  "the id %s is kept exactly beside numbers that are not integers",
  (source, id) => {
    const plant = parsed(`{"a": 0.5, "id":${source},"name":"Fern", "z": [1e400, {"id": 1.5}]}`);
    expect(plant).toEqual({ id, name: "Fern" });
  },
);

/** Either of them: which one is told below. */
const UNFIT_ID = expect.stringMatching(
  /^`id` must be (?:an integer from|written in plain digits) [^;]*$/,
);

test.each(NOT_IDS)("an id that is %s is refused: %s", (_what, source) => {
  expectRefusal(`{"id": ${source}, "name": "Fern"}`, "invalid_plant", UNFIT_ID);
  expectRefusal(`{"x": 0.5, "id":${source} ,"name":"Fern"}`, "invalid_plant", UNFIT_ID);
  expectRefusal(`{"name":"Fern","id":${source}}`, "invalid_plant", UNFIT_ID);
  expectRefusal(
    String.raw`{"\u0069\u0064"\n: ${source}, "name":"Fern"}`.replace("\\n", "\n"),
    "invalid_plant",
    UNFIT_ID,
  );
});

test.each([
  ["the last of repeated members", `{"id": 1, "id": 2.5, "id": ${INT64_MAX}, "name": "Fern"}`],
  [
    "the last of members that are none",
    `{"id": "2", "id": 2.5, "id": 1e19, "id": ${INT64_MAX}, "name": "Fern"}`,
  ],
  ["an escaped key", String.raw`{"\u0069d": 9223372036854775807, "name": "Fern"}`],
  ["a wholly escaped key", String.raw`{"\u0069\u0064": 9223372036854775807, "name": "Fern"}`],
  [
    "an escaped key after a plain one",
    String.raw`{"id": 1, "\u0069d": 9223372036854775807, "name": "Fern"}`,
  ],
  [
    "a plain key after an escaped one",
    String.raw`{"\u0069d": 1, "id": 9223372036854775807, "name": "Fern"}`,
  ],
  [
    "a nested id after it",
    `{"id": ${INT64_MAX}, "name": "Fern", "x": {"id": 1}, "y": [{"id": 2}]}`,
  ],
  [
    "a nested id before it",
    `{"x": {"id": 1}, "y": [{"id": 2}], "id": ${INT64_MAX}, "name": "Fern"}`,
  ],
  [
    "strings that look like it",
    `{"x": "\\"id\\": 1", "y": "id", "id": ${INT64_MAX}, "name": "Fern", "z": "id\\\\"}`,
  ],
  ["a name that is its key", `{"id": ${INT64_MAX}, "z": "id", "a": ["id", 1], "name": "Fern"}`],
  ["brackets in strings", `{"x": "}]", "id": ${INT64_MAX}, "y": "{[", "name": "Fern"}`],
  [
    "similar keys",
    `{"ID": 1, "id ": 2, "": 3, "i\\u0064x": 4, "id": ${INT64_MAX}, "ıd": 5, "name": "Fern"}`,
  ],
  ["much white space", `\r\n\t {\t"id"\n:\r ${INT64_MAX}\t,\n"name" : "Fern"}\n`],
  ["no white space", `{"id":${INT64_MAX},"name":"Fern"}`],
  ["a prototype after it", `{"id": ${INT64_MAX}, "name": "Fern", "__proto__": {"id": 1}}`],
  ["100 levels", `{"x": ${DEEP}, "id": ${INT64_MAX}, "name": "Fern"}`],
  [
    "many brackets in a string",
    `{"id": ${INT64_MAX}, "name": "Fern", "x": "${"[".repeat(200)}", "y": ${DEEP}}`,
  ],
])("the exact id is found with %s", (_what, body) => {
  expect(parsed(body)).toEqual({ id: INT64_MAX, name: "Fern" });
});

// Refusals

test.each([
  ["1e18", PLAIN],
  ["-1e18", PLAIN],
  ["9007199254740992.0", PLAIN],
  ["9223372036854775807.0", PLAIN],
  ["-9.223372036854775808e18", PLAIN],
  ["1e19", ID],
  ["9223372036854775808", ID],
  ["1.5", ID],
])("the refusal of the id %s says what is wrong with it", (source, message) => {
  expectRefusal(`{"id": ${source}, "name": "Fern"}`, "invalid_plant", message);
});

test.each([
  ["", "must not be empty"],
  [Buffer.from('{"id": 1, "name": "Bl\u00FCte"}', "latin1"), "must be UTF-8"],
  ["{not json", "must be valid JSON; it breaks at column 2"],
  ['{"id": 1, "name": "Fern",}', "must be valid JSON; it breaks at column 26"],
  ['{"id": 1, "name": "Fern"', "must be valid JSON; it ends too early, at column 25"],
  [" ", "must be valid JSON; it ends too early, at column 2"],
  ['{\r\n  "id": 1,\r\n  name: "Fern"\r\n}', "must be valid JSON; it breaks at line 3, column 3"],
  ['{\n  "name": "🌱", }\n', "must be valid JSON; it breaks at line 2, column 17"],
  ['\uFEFF{"id": 01}', "must be valid JSON; it breaks at column 9"],
  [`{"id": 1, "name": "Fern", "x": [${DEEP}]}`, "must not be nested deeper than 100 levels"],
  [`{"id": [${DEEP}], "name": "Fern"}`, "must not be nested deeper than 100 levels"],
  [
    `{"id": 1, "name": "Fern", "x": ${'{"x":'.repeat(100)}1${"}".repeat(100)}}`,
    "must not be nested deeper than 100 levels",
  ],
  [`[[${DEEP}]]`, "must not be nested deeper than 100 levels"],
  ["[".repeat(60_000), "must not be nested deeper than 100 levels"],
])("the refusal of what is not JSON says where it stops being it: case %#", (body, fault) => {
  expectRefusal(body, "malformed_json", `the body ${fault}`);
});

test.each([
  ["{}", [NO_ID, NO_NAME]],
  ['{"tag": "indoor"}', [NO_ID, NO_NAME]],
  ['{"tag": null}', [NO_ID, NO_NAME, TAG]],
  ['{"id": 1}', [NO_NAME]],
  ['{"id": "1"}', [ID, NO_NAME]],
  ['{"name": "Fern"}', [NO_ID]],
  ['{"name": null}', [NO_ID, NAME]],
  ['{"id": "1", "name": "Fern"}', [ID]],
  ['{"id": 1, "name": "Fern", "id": "2"}', [ID]],
  ['{"id": 1, "name": "Fern", "id": 1.00000000000000000001}', [ID]],
  ['{"id": 1, "name": 1, "tag": 1}', [NAME, TAG]],
  ['{"id": null, "name": null, "tag": null}', [ID, NAME, TAG]],
  ['{"id": 1.5, "name": "Fern", "tag": false}', [ID, TAG]],
  ['{"tag": [], "extra": 1, "name": {}, "id": 9223372036854775808}', [ID, NAME, TAG]],
  [
    String.raw`{"id": 1, "name": "a\u0000", "tag": "\ud800"}`,
    [`\`name\` ${CHARACTERS}`, `\`tag\` ${CHARACTERS}`],
  ],
  ["null", ["the body must be a JSON object with `id` and `name`"]],
  ["[]", ["the body must be a JSON object with `id` and `name`"]],
])("the refusal of %s names every field at fault or missing, and no other", (body, sentences) => {
  expectRefusal(body, "invalid_plant", sentences.join("; "));
});

test("the refusal of what is not JSON does not quote it", () => {
  for (const [, text] of NOT_JSON) expect(() => parsed(text)).toThrow(/^(?!.*Fern)the body/);
});

const schema = TypeCompiler.Compile(NewPlantSchema);

test.each([
  { id: 1, name: "Fern" },
  { id: -1, name: "", tag: "" },
  { id: 1, name: "Fern", tag: null },
  { id: 1, name: "Fern", tag: 1 },
  { id: 1, name: "Fern", more: 1 },
  { id: 1, name: null },
  { id: 1 },
  { id: 1.5, name: "Fern" },
  { id: "1", name: "Fern" },
  { id: null, name: "Fern" },
  { name: "Fern" },
])("parsePlant() takes %j if the schema of the OpenAPI document does", (value) => {
  const parse = () => parsed(JSON.stringify(value));
  if (schema.Check(value)) parse();
  else expect(parse).toThrow(expect.objectContaining({ code: "invalid_plant" }));
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
  expectRefusal(text, "invalid_plant", `${ID}; ${NO_NAME}`);
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

function parsed(body: string | Buffer): NewPlant {
  return parsePlant(Buffer.from(body));
}

function expectRefusal(body: string | Buffer, code: string, message: unknown): void {
  expect(() => parsed(body)).toThrow(expect.objectContaining({ code, message }));
}
