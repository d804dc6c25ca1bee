import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

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
 * Says what cannot be tested on this system, once in a run. The tests of it skip themselves.
 *
 * @returns `true`, for `skipIf`.
 */
export function skipped(what: string): true {
  if (isFirst(what)) console.warn(`Skipped, ${what}`);
  return true;
}

/** In the checkout, and ignored by Git: `executable.ts` removes what is old. */
const SAID = join(import.meta.dir, "../../dist/test");

/**
 * Whether no process of the run has said it. The workers of `bun test --parallel` have one parent,
 * and nothing else in common.
 */
function isFirst(what: string): boolean {
  const run = process.env["BUN_TEST_WORKER_ID"] === undefined ? process.pid : process.ppid;

  try {
    mkdirSync(SAID, { recursive: true });
    writeFileSync(join(SAID, `skipped-${run}-${Bun.hash(what)}`), "", { flag: "wx" });
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "EEXIST";
  }
}
