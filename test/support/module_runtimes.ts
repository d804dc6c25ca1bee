import { existsSync } from "node:fs";
import { join } from "node:path";

import { missing } from "./missing.ts";
import { ROOT, TEST_TIMEOUT_MS } from "./program.ts";

/** Where the pinned runtimes and compilers are, once `bun install --cwd test/runtimes` ran. */
export const RUNTIMES_MODULES = join(ROOT, "test/runtimes/node_modules");

/** A runtime that the module is promised to run on: of Node the oldest version, and the newest. */
export interface ModuleRuntime {
  readonly name: string;
  readonly kind: "bun" | "deno" | "node";
  /** Runs a file. */
  readonly run: readonly string[];
  /** Runs a file with its own test runner. */
  readonly test: readonly string[];
  /** The statement that imports its own test runner's `test`. */
  readonly importTest: string;
}

const DENO = join(RUNTIMES_MODULES, "@deno/linux-x64-glibc/deno");

/**
 * Deno has the permissions that the README has its user give, to serve and to test a store in a
 * file.
 */
export const MODULE_RUNTIMES: readonly ModuleRuntime[] = [
  {
    name: "Bun",
    kind: "bun",
    run: [process.execPath, "run"],
    // By default it ends a test after five seconds, which a slow disk may need. The others end none.
    test: [process.execPath, "test", `--timeout=${TEST_TIMEOUT_MS}`],
    importTest: 'import { test } from "bun:test";',
  },
  {
    name: "Deno",
    kind: "deno",
    run: [DENO, "run", "--no-lock", "--allow-net", "--allow-env"],
    test: [DENO, "test", "--no-lock", "--no-check", "--allow-env", "--allow-read", "--allow-write"],
    importTest: "const { test } = Deno;",
  },
  ...["22", "26"].map((version): ModuleRuntime => {
    const node = join(RUNTIMES_MODULES, `node-${version}/bin/node`);
    return {
      name: `Node ${version}`,
      kind: "node",
      run: [node],
      test: [node, "--test"],
      importTest: 'import { test } from "node:test";',
    };
  }),
];

/** The compilers that the declarations are promised for, by their major version. */
export const COMPILERS = ["5", "7"].map((version) => ({
  version,
  command: ["node-26/bin/node", `typescript-${version}/bin/tsc`].map((path) =>
    join(RUNTIMES_MODULES, path),
  ),
}));

/** One is enough where the declarations are those that the packed module is checked with. */
export const NEWEST_COMPILER = COMPILERS.slice(-1);

/** Whether the runtimes are missing here: says so for what, or fails in CI. */
export function skipsRuntimes(what: string): boolean {
  return (
    !existsSync(RUNTIMES_MODULES) &&
    missing(`${what}: bun install --frozen-lockfile --cwd test/runtimes has not run`)
  );
}
