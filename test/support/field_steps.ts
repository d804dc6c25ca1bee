import { readFileSync } from "node:fs";
import { join } from "node:path";

import { ROOT } from "./program.ts";

// The guides "Add a field" and "Change a field", followed in a repository.

/** One step of the guide "Add a field": here `light`, an optional text. */
export interface Step {
  /** From the repository's root. */
  readonly file: string;
  /** Texts that occur once in the file, each with what the step adds behind it. */
  readonly insert: Readonly<Record<string, string>>;
  /** The test that names the step if it is left out. @default a type error in the file */
  readonly test?: { readonly file: string; readonly name: string };
}

export const MIGRATIONS_TEST = "test/database/migrations.test.ts";
export const GUIDES_TEST = "test/program/guides.test.ts";

/** The edits of the guide, in its order. Behind those of the schemas, it generates the migrations. */
export const STEPS: readonly Step[] = [
  {
    file: "src/plant/plant.ts",
    insert: {
      "readonly tag?: string;\n":
        "  /** How much light the plant needs. */\n  readonly light?: string;\n",
    },
  },
  {
    file: "src/plant/plant.ts",
    insert: {
      'tag: { kind: "text", presence: "optional" },\n':
        '  light: { kind: "text", presence: "optional" },\n',
    },
  },
  {
    file: "src/database/sqlite/schema.ts",
    insert: { "tag: text(),\n": "  light: text(),\n" },
  },
  {
    file: "src/database/postgres/schema.ts",
    insert: { "tag: text(),\n": "  light: text(),\n" },
  },
  {
    file: "src/http/plants.ts",
    insert: {
      '"indoor")),\n':
        '  light: t.Optional(storableText("How much light the plant needs", "bright")),\n',
    },
  },
  {
    file: "src/http/client.ts",
    insert: { '= ["name", "tag"': ', "light"' },
    test: {
      file: GUIDES_TEST,
      name: "the client in TypeScript compares the plant's fields, and no others",
    },
  },
  {
    file: "src/http/README.md",
    insert: { 'FIELDS = ("name", "tag"': ', "light"' },
    test: {
      file: GUIDES_TEST,
      name: "the client in Python compares the plant's fields, and no others",
    },
  },
  {
    file: "src/http/README.md",
    insert: { 'fields = []string{"name", "tag"': ', "light"' },
    test: {
      file: GUIDES_TEST,
      name: "the client in Go compares the plant's fields, and no others",
    },
  },
  {
    file: "src/http/README.md",
    insert: { [lastRowOf("src/http/README.md")]: "| `light` | no | the same |\n" },
    test: {
      file: GUIDES_TEST,
      name: "src/http/README.md lists the plant's fields, and which are required",
    },
  },
  {
    file: "README.md",
    insert: { [lastRowOf("README.md")]: "| `light` | no | the same |\n" },
    test: { file: GUIDES_TEST, name: "README.md lists the plant's fields, and which are required" },
  },
];

/** The last row of a page's table of fields. */
function lastRowOf(page: string): string {
  return /^\| `tag` .*\n/m.exec(readFileSync(join(ROOT, page), "utf8"))?.[0] ?? "";
}

/** One step that requires the field of "Add a field". */
export interface ChangeStep {
  /** From the repository's root. */
  readonly file: string;
  /** Texts that occur once in the file, each with what takes its place. */
  readonly replace: Readonly<Record<string, string>>;
  /**
   * What names the step if it is left out: a test, or a type error in a file.
   *
   * @default a type error in the file of the step
   */
  readonly namedBy?: Step["test"] | string;
}

/** The parser and the schema of the document agree on what a plant must have. */
const SCHEMA_TEST = {
  file: "test/plant/plant_json.test.ts",
  name: 'parsePlant() takes {"id":1,"name":"Fern"} if the schema of the OpenAPI document does',
};

/** The steps that require the field, before the guide's commands. */
export const REQUIRING: readonly ChangeStep[] = [
  {
    file: "src/plant/plant.ts",
    replace: { "readonly light?: string;": "readonly light: string;" },
    namedBy: "src/http/plants.ts",
  },
  {
    file: "src/plant/plant.ts",
    replace: {
      'light: { kind: "text", presence: "optional" }':
        'light: { kind: "text", presence: "required" }',
    },
    namedBy: SCHEMA_TEST,
  },
  ...["sqlite", "postgres"].map((database) => ({
    file: `src/database/${database}/schema.ts`,
    replace: { "light: text(),": "light: text().notNull()," },
    namedBy: {
      file: MIGRATIONS_TEST,
      name: `the migrations of ${database} > drizzle-kit finds nothing in the schema that none of them makes`,
    },
  })),
  {
    file: "src/http/plants.ts",
    replace: {
      't.Optional(storableText("How much light the plant needs", "bright"))':
        'storableText("How much light the plant needs", "bright")',
    },
    namedBy: SCHEMA_TEST,
  },
  ...["src/http/README.md", "README.md"].map((file) => ({
    file,
    // The commands format the page.
    replace: { "| `light` | no": "| `light` | yes" },
    namedBy: {
      file: GUIDES_TEST,
      name: `${file} lists the plant's fields, and which are required`,
    },
  })),
];

/**
 * Runs commands of a guide on a terminal, in a repository, and answers for each database that the
 * column was renamed. Resolves to what they printed, if they failed.
 */
export async function failureOnTerminal(root: string, commands: string): Promise<string> {
  let printed = "";
  let asked = "";
  const decoder = new TextDecoder();
  const run = Bun.spawn(["bash", "-euo", "pipefail", "-c", commands], {
    cwd: root,
    terminal: {
      cols: 100,
      rows: 40,
      data(terminal, bytes) {
        const text = Bun.stripANSI(decoder.decode(bytes, { stream: true }));
        printed += text;
        asked += text;
        const isCreating = /❯ \+ .*create column/.test(asked);
        if (!isCreating && !/❯ ~ .*rename column/.test(asked)) return;
        asked = "";
        terminal.write(isCreating ? "\u001B[B" : "\r");
      },
    },
  });
  return (await run.exited) === 0 ? "" : printed;
}
