/**
 * `bun run test:quick`: the tests for between two edits. It leaves out whatever starts a program, be
 * it the executable, PostgreSQL, a browser or another runtime, and the files that take seconds.
 *
 * Nothing is listed for it: a file starts a program if it uses a function that calls `Bun.spawn`,
 * itself or through others, and `bun run test --update-timings` measures which files take long.
 */

import { dirname, join } from "node:path";

import timings from "./timings.json" with { type: "json" };

const ROOT = join(import.meta.dir, "..");

/** A declaration at the top level of a file: what it calls, as far as that is in the tests. */
interface Declaration {
  readonly text: string;
  /** The file of each name that it may use. */
  readonly files: ReadonlyMap<string, string>;
}

const paths = (await Array.fromAsync(new Bun.Glob("test/**/*.ts").scan(ROOT))).filter(
  (path) => !path.includes("node_modules"),
);
const declarations = new Map<string, Declaration>();
for (const path of paths) {
  const text = await Bun.file(join(ROOT, path)).text();
  // What follows the imports and precedes the first declaration belongs to the test itself.
  const parts = text.split(/^(?=(?:export )?(?:async )?(?:function\*?|const|let|class) \w)/m);
  const nameOf = (part: string) => /^(?:export )?(?:async )?\S+ (\w+)/.exec(part)?.[1] ?? "";
  const files = new Map(parts.map((part) => [nameOf(part), path]));
  for (const [, names = "", from = ""] of text.matchAll(/^import \{([^}]*)\} from "(\.[^"]+)"/gm)) {
    for (const name of names.match(/\w+/g) ?? []) files.set(name, join(dirname(path), from));
  }

  for (const part of parts) declarations.set(`${path} ${nameOf(part)}`, { text: part, files });
}

const starting = new Set<string>();
for (let before = -1; before < starting.size;) {
  before = starting.size;
  for (const [key, { text, files }] of declarations) {
    const uses = text.match(/\b\w+\b/g) ?? [];
    const starts = /\bBun\.spawn/.test(text);
    if (starts || uses.some((name) => starting.has(`${files.get(name)} ${name}`)))
      starting.add(key);
  }
}

const slow: Readonly<Record<string, number>> = timings.files;
const startsProgram = new Set(Array.from(starting, (key) => key.split(" ")[0]));
const quick = paths.filter(
  (path) => path.endsWith(".test.ts") && !(path in slow) && !startsProgram.has(path),
);

console.log(`${quick.length} files that start no program and take no seconds`);
const args = quick.map((path) => `./${path}`);
const { exitCode } = Bun.spawnSync([process.execPath, "test", "--only-failures", ...args], {
  cwd: ROOT,
  stdio: ["inherit", "inherit", "inherit"],
});
process.exit(exitCode);
