import { Database } from "bun:sqlite";
import { existsSync } from "node:fs";

import type { RestoredTokens } from "../adapter.ts";

/**
 * Ends the tokens of a backup that were revoked or deleted after it was made: otherwise a restore
 * would make a leaked token valid again.
 *
 * @param backup The path of the copy that will replace the database. No process has it open.
 * @param replaced The path of the database before. It may be missing or corrupt, or of another
 *   history: then it says nothing of some tokens, or of all.
 */
export function keepEndedTokens(backup: string, replaced: string): RestoredTokens {
  using client = new Database(backup, { readwrite: true, safeIntegers: true });
  const before = tokensOf(client);
  const accepted = before.rows.filter(isAccepted);
  const after = tryToRead(replaced);
  if (after === undefined) return { ended: 0, unconfirmed: accepted.map(({ name }) => name) };

  const known = new Map(after.rows.map((token) => [token.digest.toHex(), token]));
  const missing = accepted.filter(({ digest }) => !known.has(digest.toHex()));
  const revoked = accepted.flatMap(({ digest }) => {
    const at = known.get(digest.toHex())?.revoked_at;
    return at ? [{ digest, at }] : [];
  });
  const deleted = isSuccessor(before, after, missing.length + revoked.length) ? missing : [];
  const ended = revoked.length + deleted.length;

  if (ended > 0)
    client.transaction(() => {
      for (const { digest, at } of revoked) endToken(client, before, digest, at);
      for (const { digest } of deleted) client.run("DELETE FROM tokens WHERE digest = ?", [digest]);
      if (before.hasRevision)
        client.run("UPDATE token_revision SET revision = revision + ?", [ended]);
    })();

  return { ended, unconfirmed: deleted.length > 0 ? [] : missing.map(({ name }) => name) };
}

/** A row. The columns that came with later versions may be missing. */
interface Row {
  readonly name: string;
  readonly digest: Uint8Array;
  readonly expires_at?: bigint | null;
  readonly revoked_at?: bigint | null;
}

type Tokens = ReturnType<typeof tokensOf>;

/** Reads the tokens of a database of any version. */
function tokensOf(client: Database) {
  const rows = client.query<Row, []>("SELECT * FROM tokens").all();
  const hasRevision =
    client.query("SELECT 1 FROM sqlite_schema WHERE name = 'token_revision'").get() !== null;
  const revision = hasRevision
    ? Number(client.query("SELECT max(revision) FROM token_revision").values()[0]?.[0])
    : 0;
  return { rows, hasRevision, revision };
}

/** @returns `undefined` if there is none that can be read. */
function tryToRead(path: string): Tokens | undefined {
  if (!existsSync(path)) return undefined;
  try {
    using client = new Database(path, { readonly: true, safeIntegers: true });
    return tokensOf(client);
  } catch {
    // It may be replaced because it is corrupt.
    return undefined;
  }
}

function isAccepted({ revoked_at: revoked, expires_at: expires }: Row): boolean {
  return !revoked && (!expires || expires > BigInt(Date.now()));
}

/**
 * Whether one database comes from another, so that a token which it does not have was deleted. A
 * new database, or one that was restored from an older backup, never had it. Each change of a token
 * adds one to the revision, so a successor has at least one for each that can be seen.
 *
 * @param ended How many tokens were revoked or are missing.
 */
function isSuccessor(before: Tokens, after: Tokens, ended: number): boolean {
  const known = new Set(before.rows.map(({ digest }) => digest.toHex()));
  const added = after.rows.filter(({ digest }) => !known.has(digest.toHex())).length;
  return after.revision >= before.revision + ended + added;
}

/** A backup of the first version has no column for it: there the token is deleted. */
function endToken(client: Database, { rows }: Tokens, digest: Uint8Array, at: bigint): void {
  if (rows[0] !== undefined && "revoked_at" in rows[0])
    client.run("UPDATE tokens SET revoked_at = ? WHERE digest = ?", [at, digest]);
  else client.run("DELETE FROM tokens WHERE digest = ?", [digest]);
}
