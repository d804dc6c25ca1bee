/**
 * Says what cannot be tested here because something is not installed. The tests of it skip
 * themselves.
 *
 * @returns `true`, for `skipIf`.
 * @throws {Error} In CI, which installs everything: nobody would notice a missing test.
 */
export function missing(what: string): true {
  if (process.env["CI"]) throw new Error(`Cannot test ${what}`);
  return skipped(what);
}

/** Whether a test of a program that is not installed has to skip itself, which it says. */
export function skipsWithout(program: string, debianPackage: string): boolean {
  return Bun.which(program) === null && missing(`${program}: apt-get install ${debianPackage}`);
}

/**
 * Says what cannot be tested on this system, once in each process of the tests. The tests of it skip
 * themselves.
 *
 * @returns `true`, for `skipIf`.
 */
export function skipped(what: string): true {
  if (!said.has(what)) console.warn(`Skipped, ${what}`);
  said.add(what);
  return true;
}

const said = new Set<string>();
