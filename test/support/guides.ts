import { join } from "node:path";

import { ROOT } from "./program.ts";

/** Every Markdown page with its path from the root, the root's README first. */
export const guides = await Promise.all(
  [
    "README.md",
    "CHANGELOG.md",
    ...(await Array.fromAsync(new Bun.Glob("{src,test}/**/*.md").scan(ROOT))).toSorted(),
  ]
    .filter((path) => !path.includes("node_modules"))
    .map(async (path) => ({ path, text: await Bun.file(join(ROOT, path)).text() })),
);

/**
 * What stands below a heading, as far as the next one of the same level or above; of the first page
 * that has it.
 */
export function section(heading: string): string {
  for (const { text } of guides) {
    const [, level = "", rest] =
      new RegExp(`^(##+) ${RegExp.escape(heading)}\n(.*)`, "ms").exec(text) ?? [];
    if (rest !== undefined) return rest.split(new RegExp(`^#{2,${level.length}} `, "m"))[0] ?? "";
  }
  throw new Error(`No guide has the heading "${heading}"`);
}

/** The code in a section's blocks of one language, in order. */
export function blocks(heading: string, language: string): string[] {
  return codeIn(section(heading), language);
}

/** The rows of the first table of a section, without its header. */
export function table(heading: string): string[][] {
  const [rows = ""] = /(?:^\|.*\n)+/m.exec(section(heading)) ?? [];
  return rows.trim().split("\n").slice(2).map(cellsOf);
}

/** The cells of a row of a Markdown table. */
export function cellsOf(row: string): string[] {
  return row
    .slice(1, -1)
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim());
}

/** The block of TypeScript that exports a function of this name. */
export function codeThatExports(name: string): string {
  const found = guides
    .flatMap(({ text }) => codeIn(text, "ts"))
    .filter((code) => new RegExp(`^export (?:async )?function ${name}\\(`, "m").test(code));
  if (found.length !== 1) throw new Error(`The guides export ${name} ${found.length} times`);
  return found.join("");
}

function codeIn(text: string, language: string): string[] {
  return Array.from(
    // In a list it is indented.
    text.matchAll(new RegExp(`^( *)\`\`\`${language}\n(.*?)^\\1\`\`\``, "gms")),
    ([, , code = ""]) => code,
  );
}
