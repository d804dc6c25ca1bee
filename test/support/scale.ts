const { TEST_SCALE = "short" } = process.env;
if (TEST_SCALE !== "short" && TEST_SCALE !== "long") {
  throw new Error(`Cannot use TEST_SCALE "${TEST_SCALE}": expected short or long`);
}

/**
 * A value for the suite that every change has to pass, and one for `bun run test:faults`, which has
 * minutes.
 */
export function scaled<Value>(short: Value, long: Value): Value {
  return TEST_SCALE === "long" ? long : short;
}

/** The integers from one to another. */
export function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}
