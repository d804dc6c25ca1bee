import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { emptyDirectory, ROOT } from "./program.ts";

/** The executable by the package's own build script, in a directory of its own that is gone at the end of the scope. */
export async function buildExecutable() {
  const directory = emptyDirectory();
  const path = join(directory.path, "plant-store");
  const command = packageJson.scripts.build
    .replace("dist/plant-store", path)
    .replace(/^bun /, `"${process.execPath}" `);
  const run = Bun.spawn(["sh", "-c", command], { cwd: ROOT, stdout: "ignore", stderr: "pipe" });
  const stderr = await new Response(run.stderr).text();
  if ((await run.exited) !== 0) throw new Error(`The build failed:\n${stderr}`);
  return { program: [path], directory: directory.path, [Symbol.dispose]: () => directory[Symbol.dispose]() };
}
