import { readFileSync, writeFileSync } from "node:fs";

// Renames a field of the record, in the code and in the examples of the guides. See RECIPES.md.
const [from = "", to = "", ...rest] = process.argv.slice(2);

if (!/^[a-z]\w*$/i.test(from) || !/^[a-z]\w*$/i.test(to) || rest.length > 0) {
  console.error("Usage: bun src/recipes/rename_field.ts OLD NEW");
  process.exit(2);
}

/** What declares the fields: the record, its columns and its schemas, the clients, the tests' record. */
const DECLARATIONS = [
  "README.md",
  "src/plant/plant.ts",
  "src/database/sqlite/schema.ts",
  "src/database/postgres/schema.ts",
  "src/http/README.md",
  "src/http/client.ts",
  "src/http/plants.ts",
  "test/support/plants.ts",
];

renameIn(DECLARATIONS, (line) =>
  line
    // The name of a token is a primary key.
    .replace(new RegExp(`^(  (?:readonly )?)${from}(?=\\??: (?!.*primaryKey))`), `$1${to}`)
    .replace(new RegExp(`(["\`])${from}\\1`, "g"), `$1${to}$1`),
);

/** The plants of the examples are known by these names: leave them as they are. */
const EXAMPLE = /"(?:Fern|Ivy|Moss|Monstera deliciosa)"/;
const listed = await Bun.$`git ls-files -z README.md src test/support/plants.ts`.text();
const pages = listed.split("\0").filter((file) => /\.(?:ts|md|json|yaml)$/.test(file));
renameIn(pages, (line) =>
  EXAMPLE.test(line) ? line.replace(new RegExp(`\\b${from}(?="?:)`, "g"), to) : line,
);
await Bun.$`bun run fmt`;

function renameIn(files: readonly string[], rename: (line: string) => string): void {
  for (const file of files) {
    const text = readFileSync(file, "utf8");
    const renamed = text.split("\n").map(rename).join("\n");
    if (renamed !== text) writeFileSync(file, renamed);
  }
}
