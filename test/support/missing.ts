/**
 * Says what cannot be tested here because something is not installed. The tests of it skip
 * themselves.
 *
 * @returns `true`, for `skipIf`.
 * @throws {Error} In CI, which installs everything: nobody would notice a missing test.
 */
export function missing(what: string): true {
  if (process.env["CI"]) throw new Error(`Cannot test ${what}`);
  console.warn(`Skipped, ${what}`);
  return true;
}
