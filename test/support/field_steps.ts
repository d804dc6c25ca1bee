import { readFileSync } from "node:fs";
import { join } from "node:path";

import { ROOT } from "./program.ts";

// The guide "Add a field", as edits of this repository.

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
const OPERATOR_TEST = "test/program/operator.test.ts";

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
    insert: { "tag: text(),\n": "    light: text(),\n" },
  },
  {
    file: "src/database/postgres/schema.ts",
    insert: { "tag: text(),\n": "    light: text(),\n" },
  },
  {
    file: "src/database/sqlite/migrations.ts",
    insert: {
      'token_scopes.sql" with { type: "text" };\n': `import light from "../../../drizzle/sqlite/0003_light.sql" with { type: "text" };\n`,
      '"0002_token_scopes": tokenScopes,\n': '  "0003_light": light,\n',
    },
    test: {
      file: MIGRATIONS_TEST,
      name: "the migrations of sqlite > every one in the folder is embedded",
    },
  },
  {
    file: "src/database/postgres/migrations.ts",
    insert: {
      'plants_and_tokens.sql" with { type: "text" };\n': `import light from "../../../drizzle/postgres/0001_light.sql" with { type: "text" };\n`,
      '"0000_plants_and_tokens": plantsAndTokens,\n': '  "0001_light": light,\n',
    },
    test: {
      file: MIGRATIONS_TEST,
      name: "the migrations of postgres > every one in the folder is embedded",
    },
  },
  {
    file: "src/http/plants.ts",
    insert: {
      '"indoor")),\n':
        '  light: t.Optional(storableText("How much light the plant needs", "bright")),\n',
    },
  },
  {
    file: "src/http/openapi.ts",
    insert: { '{ name: "Monstera deliciosa", tag: "indoor"': ', light: "bright"' },
  },
  {
    file: "src/http/client.ts",
    insert: { '= ["name", "tag"': ', "light"' },
    test: {
      file: "test/clients/retries.test.ts",
      name: "200 of a cache, with another light > and sends the plant again",
    },
  },
  {
    file: "src/http/README.md",
    insert: { 'FIELDS = ("name", "tag"': ', "light"' },
    test: {
      file: OPERATOR_TEST,
      name: "the guide's client in python > takes no stranger's answer for the server's, and sends again",
    },
  },
  {
    file: "src/http/README.md",
    insert: { 'fields = []string{"name", "tag"': ', "light"' },
    test: {
      file: OPERATOR_TEST,
      name: "the guide's client in go > takes no stranger's answer for the server's, and sends again",
    },
  },
  {
    file: "src/http/README.md",
    insert: { [lastRowOf("src/http/README.md")]: "| `light` | no | the same |\n" },
    test: { file: GUIDES_TEST, name: "src/http/README.md lists the plant's fields" },
  },
  {
    file: "README.md",
    insert: { [lastRowOf("README.md")]: "| `light` | no | the same |\n" },
    test: { file: GUIDES_TEST, name: "README.md lists the plant's fields" },
  },
];

/** The last row of a page's table of fields. */
function lastRowOf(page: string): string {
  return /^\| `tag` .*\n/m.exec(readFileSync(join(ROOT, page), "utf8"))?.[0] ?? "";
}
