/**
 * Says what cannot be tested here because something is not installed: the tests of it skip themselves.
 *
 * @returns `true`, for `skipIf`.
 * @throws {Error} In CI, which installs all of it: there nobody would read that a test is missing.
 */
export function missing(what: string): true {
  if (process.env["CI"]) throw new Error(`Cannot test ${what}`);
  console.warn(`Skipped, ${what}`);
  return true;
}
