import { expect, test } from "bun:test";
import type { AddOutcome } from "../../src/database/database.ts";
import { ERRORS } from "../../src/errors.ts";
import type { Observer } from "../../src/http/observer.ts";
import { type Plant, samePlant } from "../../src/plant/plant.ts";
import { readError } from "../support/responses.ts";
import { postPlant, testApp } from "../support/app.ts";

const ID = "`id` must be an integer from -9223372036854775808 to 9223372036854775807";
const NAME = "`name` must be a string";
const TAG = "`tag` must be a string";
const CHARACTERS = "must not contain U+0000 or a lone surrogate";
const NO_ID = "`id` is missing";
const NO_NAME = "`name` is missing";

// Only what is stored is 200

test.each([[undefined], [null], ["inserted"], [["added"]], [true], ["unavailable"]])(
  "add() that resolves to %j is an internal error, whose cause the observer is told",
  async (outcome) => {
    const faults: unknown[] = [];
    const observer: Observer = { onError: ({ cause }) => void faults.push(cause), onResponse() {} };
    const app = testApp({ plants: { add: async () => outcome as AddOutcome }, observer });
    const response = await app.fetch(postPlant({ id: 1, name: "Fern" }));
    expect(await readError(response)).toEqual({ status: 500, error: 5001, message: ERRORS.internal.message });
    expect(faults).toEqual([new TypeError(`Unknown outcome of add(): ${String(outcome)}`)]);
  },
);

// What the refusal says

test.each([
  ["{}", [NO_ID, NO_NAME]],
  ['{"tag": "indoor"}', [NO_ID, NO_NAME]],
  ['{"tag": null}', [NO_ID, NO_NAME, TAG]],
  ['{"id": 1}', [NO_NAME]],
  ['{"id": "1"}', [ID, NO_NAME]],
  ['{"name": "Fern"}', [NO_ID]],
  ['{"name": null}', [NO_ID, NAME]],
  ['{"id": "1", "name": "Fern"}', [ID]],
  ['{"id": 1, "name": 1, "tag": 1}', [NAME, TAG]],
  ['{"id": null, "name": null, "tag": null}', [ID, NAME, TAG]],
  ['{"id": 1.5, "name": "Fern", "tag": false}', [ID, TAG]],
  ['{"tag": [], "extra": 1, "name": {}, "id": 9223372036854775808}', [ID, NAME, TAG]],
  [String.raw`{"id": 1, "name": "a\u0000", "tag": "\ud800"}`, [`\`name\` ${CHARACTERS}`, `\`tag\` ${CHARACTERS}`]],
  ["null", ["the body must be a JSON object with `id` and `name`"]],
  ["[]", ["the body must be a JSON object with `id` and `name`"]],
])("the refusal of %s names every field at fault or missing, and no other", async (body, sentences) => {
  const { message, ...error } = await readError(await testApp().fetch(postPlant(body)));
  expect(error).toEqual({ status: 400, error: 4002 });
  expect(message.split("; ")).toEqual(sentences);
});

test("a refusal does not quote what was sent", async () => {
  const body = '{"id": "secret-1", "name": ["secret-2"], "tag": {"secret-3": 1}, "secret-4": 5}';
  expect((await readError(await testApp().fetch(postPlant(body)))).message).not.toContain("secret");
});

// The noun

test("samePlant() compares name and tag, and tells an absent tag from an empty one", () => {
  const fern: Plant = { name: "Fern" };
  const tagged: Plant = { name: "Fern", tag: "indoor" };
  expect(samePlant(fern, { name: "Fern" })).toBe(true);
  expect(samePlant(tagged, { ...tagged })).toBe(true);
  expect(samePlant(fern, { name: "fern" })).toBe(false);
  expect(samePlant(fern, tagged)).toBe(false);
  expect(samePlant(tagged, fern)).toBe(false);
  expect(samePlant(fern, { ...fern, tag: "" })).toBe(false);
});
