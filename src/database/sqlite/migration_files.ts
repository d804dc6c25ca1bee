// Written by `bun run db:generate`.
import sql0 from "../../../drizzle/sqlite/0000_plants_and_tokens.sql" with { type: "text" };
import sql1 from "../../../drizzle/sqlite/0001_token_lifetimes.sql" with { type: "text" };
import sql2 from "../../../drizzle/sqlite/0002_token_scopes.sql" with { type: "text" };

/** The migrations of drizzle-kit, by journal tag. */
export const SQL: Readonly<Record<string, string>> = {
  "0000_plants_and_tokens": sql0,
  "0001_token_lifetimes": sql1,
  "0002_token_scopes": sql2,
};
