import type { Changes, Database } from "bun:sqlite";
import { and, asc, eq, isNull } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import type { TokenStore, TokenUse } from "../../token_store.ts";
import { translated } from "./errors.ts";
import { tokens } from "./schema.ts";

/** Tokens beside the plants, in the same database. */
export function sqliteTokens(client: Database): TokenStore {
  const db = drizzle({ client });
  const list = db.select().from(tokens).orderBy(asc(tokens.createdAt), asc(tokens.name)).prepare();

  /** Drizzle declares void, and gives what bun:sqlite does. */
  const changed = (result: unknown) => (result as Changes).changes === 1;

  const noteAll = client.transaction((uses: readonly TokenUse[]) => {
    for (const { name, at } of uses) db.update(tokens).set({ lastUsedAt: at }).where(eq(tokens.name, name)).run();
  });

  return {
    list: async () => translated(() => list.all()),
    add: async (token) => translated(() => changed(db.insert(tokens).values(token).onConflictDoNothing().run())),
    revoke: async (name, at) => {
      const toRevoke = and(eq(tokens.name, name), isNull(tokens.revokedAt));
      return translated(() => changed(db.update(tokens).set({ revokedAt: at }).where(toRevoke).run()));
    },
    recordUses: async (uses) => translated(() => noteAll.immediate(uses)),
  };
}
