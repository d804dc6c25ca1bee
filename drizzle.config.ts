import { defineConfig } from "drizzle-kit";

/** drizzle-kit takes one dialect a run: `bun run db:generate` runs it for each. */
const dialect = process.env["DIALECT"] === "postgresql" ? "postgresql" : "sqlite";
const adapter = dialect === "postgresql" ? "postgres" : "sqlite";

export default defineConfig({
  dialect,
  schema: `./src/database/${adapter}/schema.ts`,
  out: `./drizzle/${adapter}`,
});
