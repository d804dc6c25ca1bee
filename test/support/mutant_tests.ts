import { join } from "node:path";
import { ROOT } from "./program.ts";

/**
 * Runs an existing test file of a copy of the repository, and resolves to the names of the tests that failed.
 *
 * @param file From the repository's root.
 * @param name A pattern: only the tests whose names match it run.
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
  const failed = [...output.matchAll(/^\(fail\) (.*?)(?: \[[\d.]+ms\])?$/gm)].map(([, test = ""]) => test);
  // A copy that does not even load proves nothing.
  if (!passed && failed.length === 0) throw new Error(`No test ran of ${join(ROOT, file)}:\n${output}`);
  return failed;
}
