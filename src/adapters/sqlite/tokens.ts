import type { Changes, Database } from "bun:sqlite";
import { asc } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import type { TokenStore } from "../../tokens.ts";
import { tokens } from "./schema.ts";

/** Tokens beside the plants, in the same database. */
export function sqliteTokens(client: Database): TokenStore {
  const db = drizzle({ client });
  return {
    list: async () => db.select().from(tokens).orderBy(asc(tokens.createdAt)).all(),
    add: async (record) => {
      const added = db.insert(tokens).values(record).onConflictDoNothing().run() as unknown as Changes;
      return added.changes === 1;
    },
  };
}
