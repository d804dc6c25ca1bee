import { dirname, join } from "node:path";

import { ROOT } from "./program.ts";

/** The directory of the source. */
export const SRC = join(ROOT, "src");
const transpiler = new Bun.Transpiler({ loader: "ts" });

/** Every file of the source, with what it imports, types too, and what it loads when it runs. */
export const sources = await Promise.all(
  (await Array.fromAsync(new Bun.Glob("**/*.ts").scan(SRC))).map(async (path) => {
    const text = await Bun.file(join(SRC, path)).text();
    const resolved = (target: string) =>
      target.startsWith(".") ? join(dirname(path), target) : target;
    const code = text.replace(/^#!.*/, "");
    const loads = transpiler
      .scanImports(code)
      .map((load) => ({ ...load, path: resolved(load.path) }));
    const names = text.matchAll(
      /^(?:import|export)\b[^;]*?\bfrom "([^"]+)"|\bimport[ (]"([^"]+)"/gm,
    );
    const imports = Array.from(names, ([, from, whole = ""]) => resolved(from ?? whole));

    return { path, text, imports, loads };
  }),
);

/** The code without comments and the texts of strings: what it names, not what it says. */
export function namesOf(text: string): string {
  return text
    .replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "")
    .replace(/"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g, '""');
}
