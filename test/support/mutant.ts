import { cpSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

import { emptyDirectory, ROOT, temporaryDirectory } from "./program.ts";

/** One change to the source: a text that occurs exactly once in a file, and what takes its place. */
export interface Mutation {
  /** From the repository's root. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/**
 * A copy of the repository with a bug in it, to the end of the scope.
 *
 * @throws {Error} If a mutation no longer fits the source.
 */
export function mutant(mutations: readonly Mutation[]) {
  const directory = repositoryCopy();
  for (const mutation of mutations) mutate(directory.path, mutation);
  /** The program, from its changed source. */
  const program = [process.execPath, join(directory.path, "src/main.ts")];
  return { ...directory, program };
}

/** A copy of the repository with its dependencies, to the end of the scope. */
export function repositoryCopy() {
  const directory = emptyDirectory();
  for (const name of readdirSync(ROOT).filter(isOurs)) {
    cpSync(join(ROOT, name), join(directory.path, name), { recursive: true, filter: isOurs });
  }
  symlinkSync(join(ROOT, "node_modules"), join(directory.path, "node_modules"));
  return directory;
}

/** The other runtimes and the generators of clients have 700 MB, which no copy needs. */
function isOurs(path: string): boolean {
  return ![".git", "dist", "node_modules"].includes(basename(path));
}

/**
 * Changes a file of a copy.
 *
 * @throws {Error} If the text does not occur exactly once.
 */
export function mutate(root: string, { file, from, to }: Mutation): void {
  const path = join(root, file);
  const source = readFileSync(path, "utf8");
  const times = source.split(from).length - 1;

  if (times !== 1)
    throw new Error(`Cannot mutate ${file}: expected once, found ${times} times: ${from}`);
  writeFileSync(
    path,
    source.replace(from, () => to),
  );
}

/**
 * Runs one test file of a copy of the repository. Resolves to the names of the tests that failed.
 *
 * @param file From the repository's root.
 * @param name A pattern: only tests whose names match it run.
 */
export async function failingTests(root: string, file: string, name: string): Promise<string[]> {
  const run = Bun.spawn([process.execPath, "test", `./${file}`, "-t", name], {
    cwd: root,
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
  });
  const output = await new Response(run.stderr).text();
  await run.exited;

  const passed = output.includes("(pass)");
  const failed = [...output.matchAll(/^\(fail\) (.*?)(?: \[[\d.]+ms\])?$/gm)].map(
    ([, test = ""]) => test,
  );

  // A copy that does not even load proves nothing.
  if (!passed && failed.length === 0)
    throw new Error(`No test ran of ${join(ROOT, file)}:\n${output}`);
  return failed;
}

/**
 * Runs test files of a copy of the repository. Resolves to the names of the tests that failed.
 *
 * A renamed copy has a PostgreSQL of a name that nobody else uses.
 */
export async function failuresIn(root: string, files: readonly string[]): Promise<string[]> {
  const paths = files.map((file) => `./${file}`);
  // A copy builds its own executable.
  const { exitCode, stderr } =
    await Bun.$`bun test --parallel=2 --no-isolate --timeout=60000 ${paths}`
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
 * Resolves to what failed.
 */
export async function failuresOfOk(root: string): Promise<string[]> {
  const { exitCode, stdout, stderr } = await Bun.$`bun run ok`
    .cwd(root)
    .env({ ...process.env, TMPDIR: temporaryDirectory(), TEST_SCALE: "short" })
    .quiet()
    .nothrow();
  return failuresOf(exitCode, `${stdout}${stderr}`);
}

/** Gives a copy of the repository what is installed for the tests of other runtimes, and of clients. */
export function linkPackages(root: string): void {
  for (const folder of ["test/runtimes", "test/clients", "test/postgres"])
    symlinkSync(join(ROOT, folder, "node_modules"), join(root, folder, "node_modules"));
}

/** The failures that a run of tests, or of the type check, has printed. */
function failuresOf(exitCode: number, output: string): string[] {
  if (exitCode === 0) return [];
  const failures = output.match(/^\(fail\) .*$|^.* error TS\d+: .*$/gm);
  // A file that cannot be loaded has no test to name, and one that is not formatted no test at all.
  return failures ?? [output];
}
