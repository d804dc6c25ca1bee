import type { Changes } from "bun:sqlite";

import { and, eq, gt, isNotNull, isNull, lt, lte, or, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";

import {
  formatScopes,
  MAX_AHEAD_MS,
  type TokenStore,
  type TokenUse,
} from "../../auth/token_store.ts";
import type { Client } from "./bun_driver.ts";
import { tokenRevision, tokens } from "./schema.ts";
import { allTokens, tokenPages } from "./token_pages.ts";

/** The store of tokens, in the same file as the plants. */
export interface SqliteTokens extends TokenStore {
  /**
   * Reads a page of the tokens after this row, as JSON for {@linkcode allTokens}.
   */
  page(row: number): Promise<string>;
}

/** Runs calls to SQLite. */
interface Run {
  read<Result>(call: () => Result): Result;
  /** Runs a call that writes. Waits while another process holds the lock. */
  write<Result>(call: () => Result): Promise<Result>;
}

/** Prepares the statements for tokens, and returns their store. */
export function sqliteTokens(client: Client, { read, write }: Run): SqliteTokens {
  const db = drizzle({ client });
  const pageAfter = tokenPages(client);

  const recordUse = useRecorder(client);
  const recordAll = client.transaction((uses: readonly TokenUse[]) =>
    uses.forEach(recordUse),
  ).immediate;

  const revision = db.select({ revision: tokenRevision.revision }).from(tokenRevision).prepare();
  const increment = db
    .update(tokenRevision)
    .set({ revision: sql`${tokenRevision.revision} + 1` })
    .prepare();
  const runAndCount = client.transaction((statement: { run(): unknown }) => {
    // Drizzle declares void, but returns the result of bun:sqlite.
    const { changes } = statement.run() as Changes;
    if (changes > 0) increment.run();
    return changes;
  }).immediate;
  /** Runs a statement, and changes the revision if it changed tokens. Returns the number of changed tokens. */
  const change = (statement: { run(): unknown }) => write(() => runAndCount(statement));

  const page = async (row: number) => read(() => pageAfter(row));

  return {
    page,
    list: () => allTokens(page),
    revision: async () => read(() => String(revision.get()?.revision)),
    async add(token) {
      const row = { ...token, scopes: formatScopes(token.scopes) };
      return (await change(db.insert(tokens).values(row).onConflictDoNothing())) === 1;
    },

    async revoke(name, at) {
      const isValid = and(eq(tokens.name, name), isNull(tokens.revokedAt));
      return (await change(db.update(tokens).set({ revokedAt: at }).where(isValid))) === 1;
    },
    delete: async (name) => (await change(db.delete(tokens).where(eq(tokens.name, name)))) === 1,
    prune: (at) =>
      change(db.delete(tokens).where(or(isNotNull(tokens.revokedAt), lte(tokens.expiresAt, at)))),
    recordUses: (uses) => write(() => recordAll(uses)),
  };
}

/** Records a use without changing the revision: otherwise every server would reload all tokens every minute. */
function useRecorder(client: Client): (use: TokenUse) => void {
  const at = sql.placeholder("at");
  const isReplaced = or(
    isNull(tokens.lastUsedAt),
    lt(tokens.lastUsedAt, at),
    gt(tokens.lastUsedAt, sql`${at} + ${MAX_AHEAD_MS}`),
  );
  const update = drizzle({ client })
    .update(tokens)
    .set({ lastUsedAt: sql`${at}` })
    .where(and(eq(tokens.name, sql.placeholder("name")), isReplaced))
    .prepare();
  return ({ name, at }) => void update.run({ name, at: BigInt(at.getTime()) });
}
