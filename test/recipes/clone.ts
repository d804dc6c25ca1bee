import { symlinkSync } from "node:fs";
import { join } from "node:path";

import { ROOT, temporaryDirectory } from "../support/program.ts";

/** The patches of the recipes, in the order of the page. */
export const PATCHES = ["read.patch", "list.patch", "limit.patch", "field.patch"];

/** One change of a patch, as a patch. */
export interface Hunk {
  /** From the repository's root. */
  readonly file: string;
  readonly patch: string;
}

/** The changes of a patch, one by one. */
export function hunksOf(patch: string): Hunk[] {
  return patch.split(/^(?=diff --git )/m).flatMap((part) => {
    const [head = "", ...hunks] = part.split(/^(?=@@ )/m);
    const [, file = ""] = /^\+\+\+ b\/(.*)$/m.exec(head) ?? [];
    return hunks.map((hunk) => ({ file, patch: head + hunk }));
  });
}

/** The test files that a patch adds or changes; with the contract of databases, those that run it. */
export function testsOf(patch: string): string[] {
  const files = [...new Set(hunksOf(patch).map(({ file }) => file))];
  const tests = files.filter((file) => file.endsWith(".test.ts"));
  if (files.some((file) => file.endsWith("contract.ts")))
    tests.push("test/database/memory.test.ts", "test/database/sqlite/sqlite_database.test.ts");
  return [...new Set(tests)];
}

/** A shell in a directory. Rejects with what a command prints if it fails. */
export function shellIn(cwd: string) {
  return async (script: string): Promise<string> => {
    const { exitCode, stdout, stderr } = await Bun.$`bash -euo pipefail -c ${script}`
      .cwd(cwd)
      .env({ ...process.env, ...AUTHOR, TMPDIR: temporaryDirectory() })
      .quiet()
      .nothrow();
    if (exitCode !== 0) throw new Error(`${script}\n${stdout}${stderr}`);
    return stdout.toString();
  };
}

const AUTHOR = {
  GIT_AUTHOR_NAME: "Fork",
  GIT_AUTHOR_EMAIL: "fork@example.org",
  GIT_COMMITTER_NAME: "Fork",
  GIT_COMMITTER_EMAIL: "fork@example.org",
};

/** Commits a copy of the repository, as a clone of it is. Resolves to a shell in it. */
export async function commitCopy(root: string) {
  const run = shellIn(root);
  // A folder that `.gitignore` names is a link here, which it does not.
  await run("git init --quiet && echo node_modules >> .git/info/exclude");
  await run("git add --all && git commit --quiet --message Begin");
  return run;
}

/**
 * Runs test files of a copy of the repository. Resolves to the names of the tests that failed.
 *
 * A renamed copy has a PostgreSQL of a name that nobody else uses.
 *
 * @param name A pattern: only tests whose names match it run. @default all
 */
export async function failuresIn(
  root: string,
  files: readonly string[],
  name = "",
): Promise<string[]> {
  const paths = files.map((file) => `./${file}`);
  // A copy builds its own executable.
  const { exitCode, stderr } =
    await Bun.$`bun test --parallel=2 --no-isolate --timeout=60000 -t ${name} ${paths}`
      .cwd(root)
      .env({ ...process.env, TMPDIR: temporaryDirectory() })
      .quiet()
      .nothrow();
  const output = stderr.toString();
  if (!/^ *\d+ pass$/m.test(output)) throw new Error(`No test ran:\n${output}`);
  return failuresOf(exitCode, output);
}

/**
 * Runs `bun run ok` in a copy of the repository, with the packages of {@linkcode linkPackages}.
 * Resolves to what failed, each with the lines before that say why.
 */
export async function failuresOfOk(root: string): Promise<string[]> {
  const { exitCode, stdout, stderr } = await Bun.$`bun run ok`
    .cwd(root)
    .env({ ...process.env, TMPDIR: temporaryDirectory(), TEST_SCALE: "short" })
    .quiet()
    .nothrow();
  return failuresOf(exitCode, `${stdout}${stderr}`, 40);
}

/** Gives a copy of the repository what is installed for the tests of other runtimes, and of clients. */
export function linkPackages(root: string): void {
  for (const folder of ["test/runtimes", "test/clients", "test/postgres"])
    symlinkSync(join(ROOT, folder, "node_modules"), join(root, folder, "node_modules"));
}

/** The failures that a run of tests, or of the type check, has printed, with so many lines before each. */
function failuresOf(exitCode: number, output: string, before = 0): string[] {
  if (exitCode === 0) return [];
  const failure = `^(?:.*\\n){0,${before}}(?:\\(fail\\) .*|.* error TS\\d+: .*)$`;
  // A file that cannot be loaded has no test to name, and one that is not formatted no test at all.
  return output.match(new RegExp(failure, "gm")) ?? [output];
}
