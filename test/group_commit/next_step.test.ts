import { expect, test } from "bun:test";

import {
  expectedAfter,
  type Facts,
  lingerMsAfter,
  nextStep,
  type Step,
} from "../../src/group_commit/next_step.ts";

/** Nothing is pending and nothing in flight; the last batch left long ago. */
const IDLE: Facts = {
  pending: 0,
  inFlight: 0,
  maxInFlight: 1,
  sinceFlushMs: Infinity,
  expected: 0,
  isDraining: false,
};

test.each<[facts: Partial<Facts>, step: Step]>([
  // Nothing to do
  [{}, "wait"],
  [{ inFlight: 1, maxInFlight: 2 }, "wait"],
  [{ isDraining: true }, "wait"],
  // A free connection
  [{ pending: 1 }, "gather"],
  [{ pending: 9 }, "gather"],
  [{ pending: 1, isDraining: true }, "gather"],
  [{ pending: 1, sinceFlushMs: 0 }, "gather"],
  // As many in flight as may be
  [{ pending: 1, inFlight: 1 }, "wait"],
  [{ pending: 1, inFlight: 1, isDraining: true }, "wait"],
  [{ pending: 1, inFlight: 4, maxInFlight: 4 }, "wait"],
  // One in flight, and room for another: three milliseconds apart
  [{ pending: 1, inFlight: 1, maxInFlight: 2, sinceFlushMs: 0 }, { flushAfterMs: 3 }],
  [{ pending: 9, inFlight: 1, maxInFlight: 2, sinceFlushMs: 2.5 }, { flushAfterMs: 0.5 }],
  [{ pending: 1, inFlight: 1, maxInFlight: 2, sinceFlushMs: 3 }, "gather"],
  [{ pending: 1, inFlight: 3, maxInFlight: 4, sinceFlushMs: 1 }, { flushAfterMs: 2 }],
  [{ pending: 0, inFlight: 1, maxInFlight: 2, sinceFlushMs: 0 }, "wait"],
  // Others are expected
  [{ expected: 2 }, "wait"],
  [{ expected: 2, pending: 1 }, "wait"],
  [{ expected: 2, pending: 2 }, "flush"],
  [{ expected: 2, pending: 3 }, "flush"],
  [{ expected: 2, pending: 1, isDraining: true }, "flush"],
  [{ expected: 3, pending: 1, inFlight: 1, maxInFlight: 2, sinceFlushMs: 0 }, "wait"],
  [{ expected: 3, pending: 3, inFlight: 1, maxInFlight: 2, sinceFlushMs: 0 }, "flush"],
])("after %j the next step is %j", (facts, step) => {
  expect(nextStep({ ...IDLE, ...facts })).toEqual(step);
});

test.each<[settled: number, facts: Partial<Facts>, expected: number]>([
  // Of one alone nothing is known.
  [1, {}, 0],
  [1, { pending: 5 }, 0],
  [2, {}, 2],
  [2, { pending: 1 }, 3],
  // The next batch lingers already, with those that are pending counted.
  [1, { expected: 2 }, 3],
  [2, { expected: 2, pending: 1 }, 4],
])(
  "after a batch of %d came back with %j the next one is complete with %d plants",
  (settled, facts, expected) => {
    expect(expectedAfter(settled, { ...IDLE, ...facts })).toBe(expected);
  },
);

test("a batch lingers a quarter as long as the last commit took, from one to three whole milliseconds", () => {
  expect([0, 0.3, 4, 4.1, 8, 8.1, 12, 1_000].map(lingerMsAfter)).toEqual([1, 1, 1, 2, 2, 3, 3, 3]);
});
