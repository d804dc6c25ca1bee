/**
 * The maximum time of a timer, in milliseconds: with more, it fires at once (HTML standard, section
 * 8.6).
 */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Checks a number that a program gives to the module: `NaN` compares as false, and would be no
 * limit at all.
 *
 * @throws {TypeError} If it is not a number from `min` to `max`.
 */
export function requireNumber(
  name: string,
  value: unknown,
  { min = 1, max = Number.MAX_SAFE_INTEGER } = {},
): void {
  if (typeof value === "number" && value >= min && value <= max) return;

  const given = typeof value === "string" ? `"${value}"` : String(value);
  throw new TypeError(`Cannot use \`${name}\` ${given}: expected ${min} to ${max}`);
}
