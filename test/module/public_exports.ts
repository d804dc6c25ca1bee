import { dirname, join } from "node:path";
import { ROOT } from "../support/program.ts";

/** The entry points of the package, as files of `src/`. */
const ENTRIES = ["mod.ts", "database/contract/mod.ts"];

/** Something that the package exports. */
export interface PublicExport {
  readonly entry: string;
  readonly name: string;
  /** Whether it is there for the compiler only. */
  readonly isType: boolean;
  /** The text of its docstring, without the stars; `undefined` where there is none. */
  readonly docstring: string | undefined;
  /** The code of each `@example` in it. */
  readonly examples: readonly string[];
}

/** All that the package exports, as the source has it. */
export async function publicExports(): Promise<PublicExport[]> {
  return (await Promise.all(ENTRIES.map(exportsOf))).flat();
}

async function exportsOf(entry: string): Promise<PublicExport[]> {
  const text = await Bun.file(join(ROOT, "src", entry)).text();
  const statements = Array.from(text.matchAll(/^export (type )?\{([^}]+)\} from "([^"]+)";/gm));
  const all = statements.map(async ([, allTypes, names = "", path = ""]) => {
    const source = await Bun.file(join(ROOT, "src", dirname(entry), path)).text();
    const specifiers = names.split(",").map((specifier) => specifier.trim());
    return specifiers
      .filter((specifier) => specifier !== "")
      .map((specifier) => {
        const name = specifier.replace(/^type /, "");
        const docstring = docstringOf(name, source);
        const isType = allTypes !== undefined || specifier !== name;
        return { entry, name, isType, docstring, examples: examplesIn(docstring ?? "") };
      });
  });
  return (await Promise.all(all)).flat();
}

function docstringOf(name: string, source: string): string | undefined {
  const kinds = "async function|function|const|class|interface|type";
  const pattern = new RegExp(String.raw`/\*\*((?:(?!\*/)[^])*)\*/\nexport (?:${kinds}) ${name}\b`);
  return pattern
    .exec(source)?.[1]
    ?.replace(/^ *\* ?/gm, "")
    .trim();
}

function examplesIn(docstring: string): string[] {
  return Array.from(docstring.matchAll(/^@example.*\n```ts\n([^]*?)^```$/gm), ([, code = ""]) => code);
}
