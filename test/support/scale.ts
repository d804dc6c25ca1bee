const { TEST_SCALE = "short" } = process.env;
if (TEST_SCALE !== "short" && TEST_SCALE !== "long") {
  throw new Error(`Cannot use TEST_SCALE "${TEST_SCALE}": expected short or long`);
}

/**
 * A value for `.ci/run` and the suite, which hold every promise once, and one for
 * `bun run test:faults` before a release, which has minutes.
 */
export function scaled<Value>(short: Value, long: Value): Value {
  return TEST_SCALE === "long" ? long : short;
}

/** The integers from one to another, or every n-th of them. */
export function range(first: number, last: number, step = 1): number[] {
  const length = Math.floor((last - first) / step) + 1;
  return Array.from({ length }, (_, index) => first + index * step);
}
