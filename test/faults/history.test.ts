import { expect, test } from "bun:test";

import { fern, ivy } from "../support/plants.ts";
import { type Operation, violations } from "./history.ts";

const FERN = fern();
const IVY = ivy();

/** One operation as a word, a plant, and when it began and ended. */
function operation(
  outcome: Operation["outcome"],
  plant: Operation["plant"],
  invoked: number,
  returned = Number.POSITIVE_INFINITY,
): Operation {
  return { id: 1n, outcome, plant, invoked, returned };
}

const { stored, conflict, unknown, read } = {
  stored: (plant: Operation["plant"], from: number, to: number) =>
    operation("stored", plant, from, to),
  conflict: (plant: Operation["plant"], from: number, to: number) =>
    operation("conflict", plant, from, to),
  unknown: (plant: Operation["plant"], from: number) => operation("unknown", plant, from),
  read: (plant: Operation["plant"], from: number, to: number) => operation("read", plant, from, to),
};

test.each<[string, readonly Operation[]]>([
  ["nothing", []],
  ["a plant, and its retry", [stored(FERN, 1, 2), stored(FERN, 3, 4)]],
  ["a rival during the add", [stored(FERN, 1, 4), conflict(IVY, 2, 3)]],
  [
    "a plant of an unknown outcome, seen later",
    [unknown(FERN, 1), read(undefined, 2, 3), read(FERN, 4, 5)],
  ],
  ["a rival that lost against an unknown outcome", [unknown(FERN, 1), conflict(IVY, 2, 3)]],
  [
    "an unknown outcome that never took effect",
    [unknown(FERN, 1), stored(IVY, 2, 3), conflict(FERN, 4, 5)],
  ],
  [
    "a read that found nothing while the add was in flight",
    [stored(FERN, 1, 4), read(undefined, 2, 5)],
  ],
])("%s is linearizable", (_, history) => {
  expect(violations(history)).toEqual([]);
});

test.each<[string, readonly Operation[], string]>([
  [
    "a lost plant",
    [stored(FERN, 1, 2), read(undefined, 3, 4)],
    "1: it was seen, and then it was not there",
  ],
  [
    "a lost plant whose rival is stored",
    [stored(FERN, 1, 2), stored(IVY, 3, 4)],
    "1: two plants were seen",
  ],
  ["a changed plant", [stored(FERN, 1, 2), read(IVY, 3, 4)], "1: two plants were seen"],
  ["an invented plant", [read(FERN, 1, 2)], "1: a plant was seen that nobody sent"],
  ["a 409 without a rival", [conflict(FERN, 1, 2)], "1: a plant was seen that nobody sent"],
  [
    "a 409 for the plant that is stored",
    [stored(FERN, 1, 2), conflict(FERN, 3, 4)],
    "1: a plant got 409, and is the one that is stored",
  ],
  [
    "a 409 before its rival was sent",
    [conflict(IVY, 1, 2), unknown(FERN, 3)],
    "1: it was seen, and then it was not there",
  ],
  [
    "a plant that was read before it was sent",
    [read(FERN, 1, 2), stored(FERN, 3, 4)],
    "1: it was seen, and then it was not there",
  ],
  [
    "a read that forgets",
    [unknown(FERN, 1), read(FERN, 2, 3), read(undefined, 4, 5)],
    "1: it was seen, and then it was not there",
  ],
])("%s is not linearizable", (_, history, reason) => {
  expect(violations(history)).toEqual([reason]);
});
