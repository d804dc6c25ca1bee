import type { Changes, Database } from "bun:sqlite";
import { and, asc, eq, isNull } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import type { NewToken, TokenRecord, TokenUse } from "../../token_store.ts";
import { tokens } from "./schema.ts";

/** Tokens beside the plants, in the same database: the calls of the port, synchronous, and with SQLite's own errors. */
export function sqliteTokens(client: Database) {
  const db = drizzle({ client });
  const list = db.select().from(tokens).orderBy(asc(tokens.createdAt), asc(tokens.name)).prepare();

  /** Drizzle declares void, and gives what bun:sqlite does. */
  const changed = (result: unknown) => (result as Changes).changes === 1;

  const recordAll = client.transaction((uses: readonly TokenUse[]) => {
    for (const { name, at } of uses) db.update(tokens).set({ lastUsedAt: at }).where(eq(tokens.name, name)).run();
  });

  return {
    list: (): readonly TokenRecord[] => list.all(),
    add: (token: NewToken) => changed(db.insert(tokens).values(token).onConflictDoNothing().run()),
    revoke(name: string, at: Date) {
      const toRevoke = and(eq(tokens.name, name), isNull(tokens.revokedAt));
      return changed(db.update(tokens).set({ revokedAt: at }).where(toRevoke).run());
    },
    recordUses: (uses: readonly TokenUse[]) => recordAll.immediate(uses),
  };
}
