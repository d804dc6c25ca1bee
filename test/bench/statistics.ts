/** The middle value, or the mean of the two in the middle; NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2;
}

/** The smallest value that at least the share of all, from 0 to 1, does not exceed; NaN of none. */
export function quantile(sorted: Float64Array, share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
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
