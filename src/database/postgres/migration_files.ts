// Written by `bun run db:generate`.
import sql0 from "../../../drizzle/postgres/0000_plants_and_tokens.sql" with { type: "text" };

/** The migrations of drizzle-kit, by journal tag. */
export const SQL: Readonly<Record<string, string>> = {
  "0000_plants_and_tokens": sql0,
};
