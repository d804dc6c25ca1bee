import { join } from "node:path";
import { ROOT } from "../support/program.ts";

/** The code of the README that exports a function of this name. */
export async function readmeCode(name: string): Promise<string> {
  const readme = await Bun.file(join(ROOT, "README.md")).text();
  const blocks = Array.from(readme.matchAll(/^```ts\n(.*?)^```$/gms), ([, code = ""]) => code);
  const found = blocks.filter((code) => new RegExp(`^export (?:async )?function ${name}\\(`, "m").test(code));
  if (found.length !== 1) throw new Error(`The README exports ${name} ${found.length} times`);
  return found.join("");
}
