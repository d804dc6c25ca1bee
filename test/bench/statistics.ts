/** The middle value, or the mean of the two in the middle; NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2;
}

/**
 * Each round's value over the same round's base: what else the machine did in a round meets both.
 *
 * @throws {Error} If there is not one base for each value.
 */
export function ratios(values: readonly number[], bases: readonly number[]): number[] {
  if (values.length !== bases.length) throw new Error(`Cannot compare ${values.length} rounds with ${bases.length}`);
  return values.map((value, round) => value / (bases[round] ?? Number.NaN));
}
