import { expect, test } from "bun:test";

import { TypeCompiler } from "elysia/type-system";

import { NewPlantSchema } from "../../src/http/plants.ts";
import { INT64_MAX, isRequired, type NewPlant, PLANT_FIELDS } from "../../src/plant/plant.ts";
import { parsePlant } from "../../src/plant/plant_json.ts";
import { EXACT_IDS, NOT_IDS, NOT_JSON } from "../support/cases.ts";
import { fern, membersOf, OPTIONAL_TEXT, returned, TEXT } from "../support/plants.ts";

const PLAIN =
  "`id` must be written in plain digits past 9007199254740991, without a point or an exponent";
const ID = "`id` must be an integer from -9223372036854775808 to 9223372036854775807";

/** The members of a plant beside its id. */
const FERN = membersOf(fern());

/** With the level around it, as deep as may be. */
const DEEP = "[".repeat(99) + "]".repeat(99);

// Ids

test.each(EXACT_IDS)(
  "the id %s is kept exactly beside numbers that are not integers",
  (source, id) => {
    const plant = parsed(`{"a": 0.5, "id":${source},${FERN}, "z": [1e400, {"id": 1.5}]}`);
    expect(plant).toEqual(fern({ id }));
  },
);

/** Either of them: which one is told below. */
const UNFIT_ID = expect.stringMatching(
  /^`id` must be (?:an integer from|written in plain digits) [^;]*$/,
);

test.each(NOT_IDS)("an id that is %s is refused: %s", (_what, source) => {
  expectRefusal(`{"id": ${source}, ${FERN}}`, "invalid_plant", UNFIT_ID);
  expectRefusal(`{"x": 0.5, "id":${source} ,${FERN}}`, "invalid_plant", UNFIT_ID);
  expectRefusal(`{${FERN},"id":${source}}`, "invalid_plant", UNFIT_ID);
  expectRefusal(`{"\\u0069\\u0064"\n: ${source}, ${FERN}}`, "invalid_plant", UNFIT_ID);
});

test.each([
  ["the last of repeated members", `{"id": 1, "id": 2.5, "id": ${INT64_MAX}, ${FERN}}`],
  [
    "the last of members that are none",
    `{"id": "2", "id": 2.5, "id": 1e19, "id": ${INT64_MAX}, ${FERN}}`,
  ],
  ["an escaped key", `{"\\u0069d": ${INT64_MAX}, ${FERN}}`],
  ["a wholly escaped key", `{"\\u0069\\u0064": ${INT64_MAX}, ${FERN}}`],
  ["an escaped key after a plain one", `{"id": 1, "\\u0069d": ${INT64_MAX}, ${FERN}}`],
  ["a plain key after an escaped one", `{"\\u0069d": 1, "id": ${INT64_MAX}, ${FERN}}`],
  ["a nested id after it", `{"id": ${INT64_MAX}, ${FERN}, "x": {"id": 1}, "y": [{"id": 2}]}`],
  ["a nested id before it", `{"x": {"id": 1}, "y": [{"id": 2}], "id": ${INT64_MAX}, ${FERN}}`],
  [
    "strings that look like it",
    `{"x": "\\"id\\": 1", "y": "id", "id": ${INT64_MAX}, ${FERN}, "z": "id\\\\"}`,
  ],
  ["a name that is its key", `{"id": ${INT64_MAX}, "z": "id", "a": ["id", 1], ${FERN}}`],
  ["brackets in strings", `{"x": "}]", "id": ${INT64_MAX}, "y": "{[", ${FERN}}`],
  [
    "similar keys",
    `{"ID": 1, "id ": 2, "": 3, "i\\u0064x": 4, "id": ${INT64_MAX}, "ıd": 5, ${FERN}}`,
  ],
  ["much white space", `\r\n\t {\t"id"\n:\r ${INT64_MAX}\t,\n${FERN}}\n`],
  ["no white space", `{"id":${INT64_MAX},${FERN}}`],
  ["a prototype after it", `{"id": ${INT64_MAX}, ${FERN}, "__proto__": {"id": 1}}`],
  ["100 levels", `{"x": ${DEEP}, "id": ${INT64_MAX}, ${FERN}}`],
  [
    "many brackets in a string",
    `{"id": ${INT64_MAX}, ${FERN}, "x": "${"[".repeat(200)}", "y": ${DEEP}}`,
  ],
])("the exact id is found with %s", (_what, body) => {
  expect(parsed(body)).toEqual(fern({ id: INT64_MAX }));
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
  expectRefusal(`{"id": ${source}, ${FERN}}`, "invalid_plant", message);
});

test.each([
  ["", "must not be empty"],
  [Buffer.from('{"id": 1, "x": "Bl\u00FCte"}', "latin1"), "must be UTF-8"],
  ["{not json", "must be valid JSON; syntax error at column 2"],
  ['{"id": 1, "x": "Fern",}', "must be valid JSON; syntax error at column 23"],
  ['{"id": 1, "x": "Fern"', "must be valid JSON; unexpected end at column 22"],
  [" ", "must be valid JSON; unexpected end at column 2"],
  ['{\r\n  "id": 1,\r\n  x: "Fern"\r\n}', "must be valid JSON; syntax error at line 3, column 3"],
  ['{\n  "x": "🌱", }\n', "must be valid JSON; syntax error at line 2, column 14"],
  ['\uFEFF{"id": 01}', "must be valid JSON; syntax error at column 9"],
  [`{"id": 1, "x": "Fern", "y": [${DEEP}]}`, "must not be nested deeper than 100 levels"],
  [`{"id": [${DEEP}], "x": "Fern"}`, "must not be nested deeper than 100 levels"],
  [
    `{"id": 1, "x": "Fern", "y": ${'{"x":'.repeat(100)}1${"}".repeat(100)}}`,
    "must not be nested deeper than 100 levels",
  ],
  [`[[${DEEP}]]`, "must not be nested deeper than 100 levels"],
  ["[".repeat(60_000), "must not be nested deeper than 100 levels"],
])("the refusal of what is not JSON says where it stops being it: case %#", (body, fault) => {
  expectRefusal(body, "malformed_json", `the body ${fault}`);
});

/** What is wrong with a member. */
const INT64 = ID.replace("`id` ", "");
const STRING = "must be a string";
const STRINGS = { [TEXT]: STRING, [OPTIONAL_TEXT]: STRING };
const CHARACTERS = "must not contain U+0000 or a lone surrogate";
const NO_ID = { id: "is missing" };
const REQUIRED = PLANT_FIELDS.filter(isRequired);
const MISSING = Object.fromEntries(REQUIRED.map((field) => [field, "is missing"]));

test.each<[body: string, faults: Readonly<Record<string, string>>]>([
  ["{}", { ...NO_ID, ...MISSING }],
  [`{"${OPTIONAL_TEXT}": "indoor"}`, { ...NO_ID, ...MISSING }],
  [`{"${OPTIONAL_TEXT}": null}`, { ...NO_ID, ...MISSING, [OPTIONAL_TEXT]: STRING }],
  ['{"id": 1}', MISSING],
  ['{"id": "1"}', { id: INT64, ...MISSING }],
  [`{${FERN}}`, NO_ID],
  [`{"${TEXT}": null}`, { ...NO_ID, ...MISSING, [TEXT]: STRING }],
  [`{"id": "1", ${FERN}}`, { id: INT64 }],
  [`{"id": 1, ${FERN}, "id": "2"}`, { id: INT64 }],
  [`{"id": 1, ${FERN}, "id": 1.00000000000000000001}`, { id: INT64 }],
  [`{"id": 1, ${FERN}, "${TEXT}": 1, "${OPTIONAL_TEXT}": 1}`, STRINGS],
  [
    `{"id": null, "${TEXT}": null, "${OPTIONAL_TEXT}": null}`,
    { id: INT64, ...MISSING, ...STRINGS },
  ],
  [`{"id": 1.5, ${FERN}, "${OPTIONAL_TEXT}": false}`, { id: INT64, [OPTIONAL_TEXT]: STRING }],
  [
    `{"${OPTIONAL_TEXT}": [], "extra": 1, "${TEXT}": {}, "id": 9223372036854775808}`,
    { id: INT64, ...MISSING, ...STRINGS },
  ],
  [
    String.raw`{"id": 1, ${FERN}, "${TEXT}": "a\u0000", "${OPTIONAL_TEXT}": "\ud800"}`,
    { [TEXT]: CHARACTERS, [OPTIONAL_TEXT]: CHARACTERS },
  ],
])("the refusal of %s names every field at fault or missing, and no other", (body, faults) => {
  const sentences = ["id", ...PLANT_FIELDS]
    .filter((member) => member in faults)
    .map((member) => `\`${member}\` ${faults[member]}`);
  expectRefusal(body, "invalid_plant", sentences.join("; "));
});

test.each(["null", "[]"])("the refusal of %s names what each plant has", (body) => {
  const members = ["id", ...REQUIRED].map((member) => `\`${member}\``);
  const list = new Intl.ListFormat("en-GB").format(members);
  expectRefusal(body, "invalid_plant", `the body must be a JSON object with ${list}`);
});

test("the refusal of what is not JSON does not quote it", () => {
  for (const [, text] of NOT_JSON) expect(() => parsed(text)).toThrow(/^(?!.*Fern)the body/);
});

const schema = TypeCompiler.Compile(NewPlantSchema);

const FIELDS = returned(fern());

test.each([
  { id: 1, ...FIELDS },
  { id: -1, ...FIELDS, [TEXT]: "", [OPTIONAL_TEXT]: "" },
  { id: 1, ...FIELDS, [TEXT]: null },
  { id: 1, ...FIELDS, [OPTIONAL_TEXT]: null },
  { id: 1, ...FIELDS, [OPTIONAL_TEXT]: 1 },
  { id: 1, ...FIELDS, more: 1 },
  ...PLANT_FIELDS.map((field) => ({ id: 1, ...FIELDS, [field]: undefined })),
  { id: 1 },
  { id: 1.5, ...FIELDS },
  { id: "1", ...FIELDS },
  { id: null, ...FIELDS },
  FIELDS,
])("parsePlant() takes %j if the schema of the OpenAPI document does", (value) => {
  const parse = () => parsed(JSON.stringify(value));
  if (schema.Check(value)) parse();
  else expect(parse).toThrow(expect.objectContaining({ code: "invalid_plant" }));
});

/** At a million characters, anything but linear time runs into the runner's time limit. */
const LONG = 1_000_000;

test.each([
  ["digits", `1${"0".repeat(LONG)}`],
  ["nines", `-${"9".repeat(LONG)}`],
  ["digits of a fraction", `1.${"3".repeat(LONG)}`],
  ["digits of an exponent", `1e${"9".repeat(LONG)}`],
  ["digits of a negative exponent", `10e-${"9".repeat(LONG)}`],
])("parsePlant() refuses an id of very many %s in linear time", (_what, source) => {
  expectRefusal(`{"id": ${source}, ${FERN}}`, "invalid_plant", ID);
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
  expect(parsed(`{${FERN}, ${members}}`)).toEqual(fern());
});

function parsed(body: string | Buffer): NewPlant {
  return parsePlant(Buffer.from(body));
}

function expectRefusal(body: string | Buffer, code: string, message: unknown): void {
  expect(() => parsed(body)).toThrow(expect.objectContaining({ code, message }));
}
