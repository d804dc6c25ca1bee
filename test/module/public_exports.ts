import { dirname, join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };
import { ROOT } from "../support/program.ts";

/** The entry points of the package: what programs import, and the file of `src/` behind it. */
export const ENTRIES = Object.entries(packageJson.exports).flatMap(([path, target]) => {
  if (typeof target === "string") return [];
  const file = target.default.replace("./dist/module/", "").replace(/js$/, "ts");
  return [{ specifier: join(packageJson.name, path), file }];
});

/** Something that the package exports. */
export interface PublicExport {
  readonly name: string;
  /** What programs import it from. */
  readonly specifier: string;
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
  for (const { specifier, file } of ENTRIES) {
    const text = await Bun.file(join(ROOT, "src", file)).text();
    const add = (name: string, isType: boolean, source: string) => {
      const docstring = docstringOf(name, source);
      const examples = Array.from((docstring ?? "").matchAll(EXAMPLE), ([, code = ""]) => code);
      found.push({ name, specifier, isType, docstring, examples });
    };

    for (const [, kind = "", name = ""] of text.matchAll(DECLARATION))
      add(name, ["interface", "type"].includes(kind), text);

    for (const [, areTypes, names = "", path = ""] of text.matchAll(
      /^export (type )?\{([^}]+)\} from "([^"]+)";/gm,
    )) {
      const source = await Bun.file(join(ROOT, "src", dirname(file), path)).text();
      for (const [, isType = areTypes, name = ""] of names.matchAll(/(type )?(\w+)/g))
        add(name, isType !== undefined, source);
    }
  }

  return found;
}

const KINDS = "async function|function|const|class|interface|type";
/** What an entry point declares itself. */
const DECLARATION = new RegExp(`^export (${KINDS}) (\\w+)`, "gm");
const EXAMPLE = /^@example.*\n```ts\n([^]*?)^```$/gm;

function docstringOf(name: string, source: string): string | undefined {
  const pattern = new RegExp(String.raw`/\*\*((?:(?!\*/)[^])*)\*/\nexport (?:${KINDS}) ${name}\b`);
  return pattern
    .exec(source)?.[1]
    ?.replace(/^ *\* ?/gm, "")
    .trim();
}
