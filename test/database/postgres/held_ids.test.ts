import { expect, test } from "bun:test";

import {
  type HeldId,
  HeldIds,
  type HeldStep,
  heldStep,
  refusedMs,
} from "../../../src/database/postgres/held_ids.ts";
import { range } from "../../support/scale.ts";

const NEVER = Number.NEGATIVE_INFINITY;
const HELD: HeldId = { metAt: 10_000, retryAt: 11_000 };

test.each<
  [what: string, held: HeldId | undefined, now: number, releasedAt: number, step: HeldStep]
>([
  ["met no lock", undefined, 10_000, NEVER, "insert"],
  ["met no lock, after the end of another one's", undefined, 10_000, 9_999, "insert"],
  ["met a lock just now", HELD, 10_000, NEVER, "refuse"],
  ["met a lock almost a second ago", HELD, 10_999, NEVER, "refuse"],
  ["met a lock a second ago", HELD, 11_000, NEVER, "retry"],
  ["met a lock before the end of another one's", HELD, 10_002, 10_001, "retry"],
  ["met a lock after the end of another one's", HELD, 10_002, 9_999, "refuse"],
])("heldStep() of an id that %s", (_what, held, now, releasedAt, step) => {
  expect(heldStep(held, now, releasedAt)).toBe(step);
});

test.each([
  [1, 1_000],
  [10, 1_000],
  [20, 2_000],
  [30, 3_000],
  [10_000, 3_000],
])("refusedMs() with %i held ids is %i", (count, ms) => expect(refusedMs(count)).toBe(ms));

/** A clock that stands still. */
function stoppedClock(): { now: number } & Disposable {
  const { now } = performance;
  const clock = { now: 10_000, [Symbol.dispose]: () => void (performance.now = now) };
  performance.now = () => clock.now;
  return clock;
}

test("an id that met a lock is refused, then retried, and inserted again once it is released", () => {
  using clock = stoppedClock();
  const held = new HeldIds();
  const step = () => held.stepFor(1n, clock.now);
  expect(step()).toBe("insert");

  held.met(1n);
  expect(step()).toBe("refuse");

  clock.now += 1_000;
  expect(step()).toBe("retry");

  held.met(1n);
  expect(step()).toBe("refuse");

  held.released(1n);
  expect(step()).toBe("insert");
});

test("once a held id is released, the others are retried; an id that met no lock releases none", () => {
  using clock = stoppedClock();
  const held = new HeldIds();
  for (const id of [1n, 2n]) held.met(id);
  clock.now++;
  held.released(3n);

  expect(held.stepFor(2n, clock.now)).toBe("refuse");

  held.released(1n);
  expect(held.stepFor(2n, clock.now)).toBe("retry");
});

test("an id that meets a lock after others were released is not retried for each of them", () => {
  using clock = stoppedClock();
  const held = new HeldIds();
  for (const id of [1n, 2n, 3n, 4n]) held.met(id);
  clock.now++;
  held.released(1n);
  held.met(4n);
  clock.now++;
  held.released(2n);

  expect(held.stepFor(4n, clock.now)).toBe("refuse");

  clock.now += 998;
  held.released(3n);
  expect(held.stepFor(4n, clock.now)).toBe("refuse");
});

test("10,000 ids are remembered; of more, the oldest is forgotten", () => {
  using clock = stoppedClock();
  const held = new HeldIds();
  const remembered = () =>
    range(1, 10_002).filter((id) => held.stepFor(BigInt(id), clock.now) !== "insert");

  for (const id of range(1, 10_001)) held.met(BigInt(id));
  expect(remembered()).toEqual(range(2, 10_001));

  // Met again, it is the newest.
  held.met(2n);
  held.met(10_002n);
  expect(remembered()).toEqual([2, ...range(4, 10_002)]);
});

test("an id that is not sent again is forgotten when another one meets a lock", () => {
  using clock = stoppedClock();
  const held = new HeldIds();
  held.met(1n);
  clock.now += 30_000;
  expect(held.stepFor(1n, clock.now)).toBe("retry");
  held.met(2n);
  expect(held.stepFor(1n, clock.now)).toBe("insert");
});
