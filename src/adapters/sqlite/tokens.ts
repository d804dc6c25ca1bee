import type { Changes, Database } from "bun:sqlite";
import { and, asc, count, eq, isNull, lt, max, or, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import { SCOPES } from "../../scopes.ts";
import type { NewToken, TokenRecord, TokenUse } from "../../token_store.ts";
import { tokens } from "./schema.ts";

/** Tokens beside the plants, in the same database: the calls of the port, synchronous, and with SQLite's own errors. */
export function sqliteTokens(client: Database) {
  const db = drizzle({ client });
  const list = db.select().from(tokens).orderBy(asc(tokens.createdAt), asc(tokens.name)).prepare();

  // Changes with what other connections commit, plants and uses too, so the tokens are looked at only then.
  const dataVersion = client.query<{ data_version: bigint }, []>("PRAGMA data_version");
  const summary = db
    .select({ all: count(), newest: max(tokens.createdAt), revoked: count(tokens.revokedAt) })
    .from(tokens)
    .prepare();
  let revision = { dataVersion: -1n, text: "" };

  function currentRevision(): string {
    const now = dataVersion.get()?.data_version ?? -1n;
    if (now !== revision.dataVersion) revision = { dataVersion: now, text: JSON.stringify(summary.get()) };
    return revision.text;
  }

  /** `data_version` does not change with what this connection commits. */
  function tokensChanged(): void {
    revision = { dataVersion: -1n, text: "" };
  }

  /** Drizzle declares void, and gives what bun:sqlite does. */
  const changed = (result: unknown) => (result as Changes).changes === 1;

  const at = sql.placeholder("at");
  const isEarlier = or(isNull(tokens.lastUsedAt), lt(tokens.lastUsedAt, at));
  const recordUse = db
    .update(tokens)
    .set({ lastUsedAt: sql`${at}` })
    .where(and(eq(tokens.name, sql.placeholder("name")), isEarlier))
    .prepare();
  const recordAll = client.transaction((uses: readonly TokenUse[]) => {
    for (const { name, at } of uses) recordUse.run({ name, at: BigInt(at.getTime()) });
  });

  return {
    // Every token may do everything: there is no column that says otherwise.
    list: (): readonly TokenRecord[] => list.all().map((row) => ({ ...row, scopes: SCOPES })),
    revision: currentRevision,
    add(token: NewToken) {
      tokensChanged();
      return changed(db.insert(tokens).values(token).onConflictDoNothing().run());
    },
    revoke(name: string, at: Date) {
      tokensChanged();
      const toRevoke = and(eq(tokens.name, name), isNull(tokens.revokedAt));
      return changed(db.update(tokens).set({ revokedAt: at }).where(toRevoke).run());
    },
    recordUses: (uses: readonly TokenUse[]) => recordAll.immediate(uses),
  };
}
