import type { Changes, Database } from "bun:sqlite";
import { and, asc, eq, getTableColumns, isNotNull, isNull, lt, lte, or, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import { formatScopes, parseScopes, type TokenRecord, type TokenStore, type TokenUse } from "../../auth/token_store.ts";
import { tokenRevision, tokens } from "./schema.ts";

/** How to run a call of SQLite that reads, and one that writes. */
export interface Calls {
  read<Result>(call: () => Result): Result;
  write<Result>(call: () => Result): Result;
}

/** The tokens, in the database of the plants. */
export function sqliteTokens(client: Database, { read, write }: Calls): TokenStore {
  const db = drizzle({ client });
  const list = db.select().from(tokens).orderBy(asc(tokens.createdAt), asc(tokens.name)).prepare();
  const revision = db.select({ revision: tokenRevision.revision }).from(tokenRevision).prepare();
  const increment = db
    .update(tokenRevision)
    .set({ revision: sql`${tokenRevision.revision} + 1` })
    .prepare();
  const recordUse = useRecorder(client);
  const recordAll = client.transaction((uses: readonly TokenUse[]) => uses.forEach(recordUse)).immediate;
  const runAndCount = client.transaction((statement: { run(): unknown }) => {
    // Drizzle declares void, but returns the result of bun:sqlite.
    const { changes } = statement.run() as Changes;
    if (changes > 0) increment.run();
    return changes;
  }).immediate;
  /** Runs a statement, and changes the revision if it changed tokens. Returns how many. */
  const change = (statement: { run(): unknown }) => write(() => runAndCount(statement));

  return {
    list: async () => read(() => list.all().map(toRecord)),
    revision: async () => read(() => String(revision.get()?.revision)),
    async add(token) {
      const row = { ...token, scopes: formatScopes(token.scopes) };
      return change(db.insert(tokens).values(row).onConflictDoNothing()) === 1;
    },
    async revoke(name, at) {
      const isValid = and(eq(tokens.name, name), isNull(tokens.revokedAt));
      return change(db.update(tokens).set({ revokedAt: at }).where(isValid)) === 1;
    },
    delete: async (name) => change(db.delete(tokens).where(eq(tokens.name, name))) === 1,
    prune: async (at) => change(db.delete(tokens).where(or(isNotNull(tokens.revokedAt), lte(tokens.expiresAt, at)))),
    recordUses: async (uses) => write(() => recordAll(uses)),
  };
}

/** A page of tokens. */
export interface TokenPage {
  readonly tokens: readonly TokenRecord[];
  /** The row of the last one. */
  readonly last: bigint | undefined;
}

/** How many tokens a page has: reading them takes about ten milliseconds. */
const PAGE_TOKENS = 1_000;

/** Prepares reading the tokens after a row, in the order of the rows: reading all at once would delay plants. */
export function readTokenPage(client: Database): (row: bigint) => TokenPage {
  const page = drizzle({ client })
    .select({ ...getTableColumns(tokens), row: sql<bigint>`rowid` })
    .from(tokens)
    .where(sql`rowid > ${sql.placeholder("row")}`)
    .orderBy(sql`rowid`)
    .limit(PAGE_TOKENS)
    .prepare();
  return (row) => {
    const rows = page.all({ row });
    return { tokens: rows.map(toRecord), last: rows.at(-1)?.row };
  };
}

function toRecord({ name, digest, createdAt, expiresAt, revokedAt, lastUsedAt, scopes }: TokenRow): TokenRecord {
  return { name, digest, createdAt, expiresAt, revokedAt, lastUsedAt, scopes: parseScopes(scopes) };
}

type TokenRow = typeof tokens.$inferSelect;

/** A use does not change the revision: every server would read all tokens every minute. */
function useRecorder(client: Database): (use: TokenUse) => void {
  const at = sql.placeholder("at");
  const isEarlier = or(isNull(tokens.lastUsedAt), lt(tokens.lastUsedAt, at));
  const update = drizzle({ client })
    .update(tokens)
    .set({ lastUsedAt: sql`${at}` })
    .where(and(eq(tokens.name, sql.placeholder("name")), isEarlier))
    .prepare();
  return ({ name, at }) => void update.run({ name, at: BigInt(at.getTime()) });
}
