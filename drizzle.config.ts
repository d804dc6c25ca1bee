import { readFileSync } from "node:fs";

import { type Config, defineConfig } from "drizzle-kit";

/** drizzle-kit takes one database a run: `bun run db:generate` runs it for each folder of `drizzle/`. */
const database = process.env["DATABASE"] ?? "sqlite";
const out = `./drizzle/${database}`;
const { dialect }: Pick<Config, "dialect"> = JSON.parse(
  readFileSync(`${out}/meta/_journal.json`, "utf8"),
);

export default defineConfig({
  dialect,
  schema: `./src/database/${database}/schema.ts`,
  out,
} as Config);
