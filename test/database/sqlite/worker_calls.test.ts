import { expect, setDefaultTimeout, test } from "bun:test";

import * as fc from "fast-check";

import { decodeBatch, encodeBatch } from "../../../src/database/sqlite/worker_calls.ts";
import { makeTokens } from "../../bench/prefilled.ts";
import { openWorker } from "../../support/database_fixture.ts";
import { fern, OPTIONAL_TEXT, TEXT } from "../../support/plants.ts";
import { emptyDirectory, memoryDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";
import { anyCharacter } from "../../support/unicode.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Texts of any UTF-16 code units, and of those that the message itself is made of. */
const text = fc.oneof(
  fc.string({ unit: anyCharacter }),
  fc.array(fc.integer({ min: 0, max: 0xffff })).map((units) => String.fromCharCode(...units)),
  fc.string({ unit: fc.constantFrom(" ", "\n", "-", "0", "\0") }),
);
const id = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const plant = fc
  .record({ id, [TEXT]: text, [OPTIONAL_TEXT]: text }, { requiredKeys: ["id", TEXT] })
  .map(fern);

test("decodeBatch() gives the batch that encodeBatch() was given, exactly", () => {
  fc.assert(
    fc.property(fc.nat(), fc.array(plant), (timeoutMs, plants) => {
      expect(decodeBatch(encodeBatch(plants, timeoutMs))).toStrictEqual({ timeoutMs, plants });
    }),
  );
});

test("a Worker's list has every token of several pages once, oldest first", async () => {
  using directory = emptyDirectory(memoryDirectory());
  makeTokens(directory.path, 2_500);
  await using database = await openWorker(directory.at("plants.db"));
  const tokens = await database.tokens.list();
  expect(new Set(tokens.map(({ name }) => name)).size).toBe(2_500);
  expect(tokens).toHaveLength(2_500);

  const times = tokens.map(({ createdAt }) => createdAt.getTime());
  expect(times).toEqual(times.toSorted((one, other) => one - other));
});
