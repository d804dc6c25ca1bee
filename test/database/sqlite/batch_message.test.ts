import { expect, test } from "bun:test";
import * as fc from "fast-check";
import {
  decodeBatch,
  decodeOutcomes,
  encodeBatch,
  encodeOutcomes,
} from "../../../src/database/sqlite/batch_message.ts";
import { anyCharacter } from "../../support/unicode.ts";

/** Texts of any UTF-16 code units, and of those that the message itself is made of. */
const text = fc.oneof(
  fc.string({ unit: anyCharacter }),
  fc.array(fc.integer({ min: 0, max: 0xffff })).map((units) => String.fromCharCode(...units)),
  fc.string({ unit: fc.constantFrom(" ", "\n", "-", "0", "\0") }),
);
const id = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const plant = fc.oneof(fc.record({ id, name: text }), fc.record({ id, name: text, tag: text }));

test("decodeBatch() gives the batch that encodeBatch() was given, exactly", () => {
  fc.assert(
    fc.property(fc.nat(), fc.nat(), fc.array(plant), (messageId, timeoutMs, plants) => {
      const batch = { id: messageId, timeoutMs, plants };
      expect(decodeBatch(encodeBatch(batch))).toStrictEqual(batch);
    }),
  );
});

test("decodeOutcomes() gives the outcomes that encodeOutcomes() was given, in order", () => {
  const outcome = fc.constantFrom("added", "present", "conflict", "locked");
  fc.assert(
    fc.property(fc.nat(), fc.array(outcome), (messageId, outcomes) => {
      const message = { id: messageId, outcomes };
      expect(decodeOutcomes(encodeOutcomes(message))).toStrictEqual(message);
    }),
  );
});
