import { readdirSync } from "node:fs";
import { join } from "node:path";

// Writes `database/*/migration_files.ts` after drizzle-kit has written a migration. The executable has no folder to read, and Deno, which
// imports a checkout, knows no macro.

const ROOT = join(import.meta.dir, "../..");

for (const database of readdirSync(join(ROOT, "drizzle"))) {
  const journal = Bun.file(join(ROOT, "drizzle", database, "meta/_journal.json"));
  const { entries }: { entries: { tag: string }[] } = await journal.json();

  const imports = entries.map(
    ({ tag }, index) =>
      `import sql${index} from "../../../drizzle/${database}/${tag}.sql" with { type: "text" };\n`,
  );
  const members = entries.map(({ tag }, index) => `  "${tag}": sql${index},\n`);
  const code = `// Written by \`bun run db:generate\`.
${imports.join("")}
/** The migrations of drizzle-kit, by journal tag. */
export const SQL: Readonly<Record<string, string>> = {
${members.join("")}};
`;
  await Bun.write(join(ROOT, "src/database", database, "migration_files.ts"), code);
}
