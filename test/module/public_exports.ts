import { dirname, join } from "node:path";

import { ROOT } from "../support/program.ts";

/** The entry points of the package, as files of `src/`. */
const ENTRIES = ["mod.ts", "database/contract/mod.ts"];

/** Something that the package exports. */
export interface PublicExport {
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
  const found: PublicExport[] = [];
  for (const entry of ENTRIES) {
    const text = await Bun.file(join(ROOT, "src", entry)).text();
    for (const [, areTypes, names = "", path = ""] of text.matchAll(
      /^export (type )?\{([^}]+)\} from "([^"]+)";/gm,
    )) {
      const source = await Bun.file(join(ROOT, "src", dirname(entry), path)).text();
      for (const [, isType = areTypes, name = ""] of names.matchAll(/(type )?(\w+)/g)) {
        const docstring = docstringOf(name, source);
        const examples = Array.from((docstring ?? "").matchAll(EXAMPLE), ([, code = ""]) => code);
        found.push({ name, isType: isType !== undefined, docstring, examples });
      }
    }
  }
  return found;
}

const EXAMPLE = /^@example.*\n```ts\n([^]*?)^```$/gm;

function docstringOf(name: string, source: string): string | undefined {
  const kinds = "async function|function|const|class|interface|type";
  const pattern = new RegExp(String.raw`/\*\*((?:(?!\*/)[^])*)\*/\nexport (?:${kinds}) ${name}\b`);
  return pattern
    .exec(source)?.[1]
    ?.replace(/^ *\* ?/gm, "")
    .trim();
}
