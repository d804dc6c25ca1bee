import { Database } from "bun:sqlite";
import { existsSync, statSync } from "node:fs";
import { type FileHandle, link, mkdir, open, rename } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";

import { withAbort } from "../../async/timers.ts";
import { isSystemError, reasonOf } from "../../errors.ts";
import type { BackupFormat, ReadOptions, RestoredTokens } from "../adapter.ts";
import { DatabaseError, keysetPages } from "../database.ts";
import { howToRunOn, inShell } from "./advice.ts";
import { connect } from "./bun_driver.ts";
import { checkFile } from "./check.ts";
import { complete, type Draft, draftIn } from "./draft.ts";
import { withFileError } from "./errors.ts";
import { exclusiveLock } from "./exclusive_lock.ts";
import { requireUnmarked } from "./markers.ts";
import { becomeOwner, ownerOf } from "./owner.ts";
import { readPage } from "./pages.ts";
import {
  COMPANION_SUFFIXES,
  databaseFile,
  makeDirectory,
  RESTORE_SUFFIX,
  walFileBytes,
} from "./path.ts";
import { allTokens, tokenPages } from "./token_pages.ts";
import { requireOwnDirectory, requireOwner, requireTrustedPlace } from "./trust.ts";

/**
 * Replaces a database with a copy of a backup. The database may be missing or corrupt. Moves its old
 * files into a directory beside it, and deletes none. Moves nothing before the copy is complete,
 * fsynced and checked, or while another process holds SQLite's lock on the database.
 *
 * If it is killed, the next restore finishes its work. Until then one of these holds:
 *
 * - The old database is in place.
 * - The old file is in the directory `plants.db-replacing`, and no server starts.
 * - The restored database is in place, and all old files are in that directory.
 *
 * Every process that uses a database in WAL mode holds a lock on it, even in another container. A file
 * that no server has opened yet, such as a backup, is not in WAL mode. A command that is reading such a
 * file goes on reading the old one.
 *
 * @param source The path of the backup, for messages.
 * @returns `undefined` if stopped.
 * @throws {DatabaseError} If the database is in use, or the backup is corrupt or cannot be used. Also if
 *   a step fails after the first file was moved: the message says where the files are.
 * @throws {Error} The system's error if a file cannot be read or written. Nothing is changed.
 */
export async function restoreSqlite(path: string, source: string, options: ReadOptions) {
  requireUsable(resolve(source), ownerOf(path));
  await using backup = await openFile(source);
  becomeOwner(path);
  makeDirectory(path);
  const file = requireReplaceable(path, resolve(source));
  // Fails early: checking a large backup takes minutes. The move takes the lock again.
  exclusiveLock(file, path)[Symbol.dispose]();

  await using draft = await draftBeside(file);
  const result = await withAbort(copyAndCheck(source, backup, draft), options.stop);
  if (result === undefined) return undefined;

  await complete(draft, modeOf(file));

  using _ = exclusiveLock(file, path);
  const { replaced, tokens } = await replace(file, draft, source);
  return {
    plants: result.plants,
    bytes: statSync(file).size,
    replaced,
    howToAddOthers: replaced && howToImport(join(replaced, basename(file)), file),
    tokens,
  };
}

/** Checks a backup and opens it where it is, for another kind of database to import. */
export const openBackup: BackupFormat["open"] = async (source, { stop, onWarning }) => {
  const path = resolve(source);
  becomeOwner(path);
  requireUsable(path);
  await (await openFile(source)).close();

  const corrupt = (finding: string) => `Cannot restore "${source}": it is corrupt: ${finding}`;
  const checked = await withAbort(checkFile(path, corrupt), stop);
  if (checked === undefined) return undefined;

  const client = connect(path, { access: "read", onWarning });
  const tokensAfter = tokenPages(client);
  const pageFrom = readPage(client);

  return {
    pages: () => keysetPages(pageFrom),
    tokens: await allTokens(async (row) => tokensAfter(row)),
    [Symbol.asyncDispose]: async () => client[Symbol.dispose](),
  };
};

async function draftBeside(file: string): Promise<Draft> {
  const place = dirname(file);
  return await draftIn(place).catch((cause: unknown) => {
    if (!isSystemError(cause)) throw cause;
    // For example a new disk, which still belongs to root.
    throw new DatabaseError(`Cannot write to "${place}": ${reasonOf(cause)}; nothing was changed`, {
      cause,
    });
  });
}

function howToImport(old: string, file: string): string | undefined {
  return existsSync(old) ? howToRunOn(`import ${inShell(old)} --tokens`, file) : undefined;
}

/** Requires that a backup is a file of a trusted owner, without a WAL and not marked as corrupt. */
function requireUsable(source: string, owner?: number): void {
  withFileError("restore", source, () => {
    // Reading a pipe would block.
    if (existsSync(source) && !statSync(source).isFile())
      throw new DatabaseError("it is not a file");
    // Whoever can replace the backup, or a link to it, decides which tokens the server accepts.
    for (const place of [databaseFile(source), source]) requireOwnDirectory(place, owner);
    // A file in use, or a copy of one, has its newest plants in the WAL.
    if (walFileBytes(source) > 0)
      throw new DatabaseError(
        `it has a WAL beside it ("${basename(source)}-wal"); to make a backup of it, ${howToRunOn("backup FILE", databaseFile(source))}`,
      );
    requireUnmarked(
      source,
      () => `use an older backup, or to check it, ${howToRunOn("check", databaseFile(source))}`,
    );
  });
}

/** Opens a backup, before root switches to a user who may not be able to. */
async function openFile(source: string): Promise<FileHandle> {
  return await open(source).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== "EACCES") throw cause;
    throw new DatabaseError(`Cannot restore "${source}": ${UNREADABLE}`, { cause });
  });
}

/** Requires that a backup can replace a database. Returns the database's file with links resolved. */
function requireReplaceable(path: string, source: string): string {
  return withFileError("replace", path, () => {
    const file = databaseFile(path);
    if (existsSync(file) && !statSync(file).isFile()) throw new DatabaseError("it is not a file");
    requireTrustedPlace(file, "create");
    // The new file will belong to this user.
    requireOwner(file, "it");

    if (existsSync(source) && databaseFile(source) === file)
      throw new DatabaseError("the backup is the database itself");
    return file;
  });
}

/** Copies a backup into a draft, and checks the copy. Messages name the backup, not the draft. */
async function copyAndCheck(source: string, backup: FileHandle, { path, file }: Draft) {
  // Read through its descriptor: perhaps only root could open it.
  const piece = Buffer.alloc(PIECE_BYTES);
  for (;;) {
    const { bytesRead } = await backup.read(piece);
    if (bytesRead === 0) break;
    await file.appendFile(piece.subarray(0, bytesRead));
  }

  return checkFile(path, (finding) => `it is corrupt: ${finding}`).catch(({ message }: Error) => {
    // Absolute, as the draft's path in the message is.
    const named = message.replaceAll(path, resolve(source));
    throw new DatabaseError(`Cannot restore "${source}": ${named}`);
  });
}

/** The size of a piece of the copy, in bytes. */
const PIECE_BYTES = 2 ** 20;

const UNREADABLE =
  "the user who runs this may not read it; run chown, or make backups as this user";

/** Returns the mode of the database, even if a restore was interrupted. */
function modeOf(file: string): number {
  const old = [file, join(file + RESTORE_SUFFIX, basename(file))].find((path) => existsSync(path));
  return old === undefined ? 0o600 : statSync(old).mode;
}

/**
 * Moves the old files aside, and the draft into their place. Moves the main file first, so that no
 * server starts. The other files follow, because SQLite would apply the old WAL to the restored file.
 * Now that the old tokens cannot change, revokes in the draft the tokens that were revoked in the old
 * database.
 *
 * @returns The directory with the old files, and the state of the tokens.
 * @throws {DatabaseError} If a step fails. The message says where the files are.
 */
async function replace(file: string, draft: Draft, source: string) {
  const { parent } = draft;
  const aside = file + RESTORE_SUFFIX;
  const kept = `${file}-replaced-${new Date().toISOString().replaceAll(":", "-")}`;
  const moved = `the old files are in "${aside}", and no server starts: run plant-store restore again`;
  let outcome = `Cannot restore "${source}"`;
  let state = !existsSync(file) && existsSync(aside) ? moved : "nothing was changed";

  try {
    // An earlier restore was killed before its last step.
    if (existsSync(file) && existsSync(join(aside, basename(file))))
      await renameDurably(aside, `${kept}-before`, parent);

    const old = ["", ...COMPANION_SUFFIXES]
      .map((suffix) => file + suffix)
      .filter((name) => existsSync(name));
    if (old.length > 0 && !existsSync(aside)) {
      await mkdir(aside, { mode: 0o700 });
      await parent.sync();
    }

    await using asideDirectory = existsSync(aside) ? await open(aside) : undefined;
    const syncBoth = async () => {
      await asideDirectory?.sync();
      await parent.sync();
    };

    for (const name of old) {
      await rename(name, join(aside, basename(name)));
      state = moved;
      // A power loss must not bring back the main file without the files beside it.
      if (name === file) await syncBoth();
    }

    await syncBoth();

    // Closing the old file releases the lock on it, but its path no longer leads to it.
    const tokens = keepRevokedTokens(draft.path, join(aside, basename(file)));
    await draft.file.sync();

    // Unlike rename, link fails if the path has a file by now.
    await link(draft.path, file);
    outcome = `Restored "${source}", but a later step failed`;
    state = `old files are in "${aside}" or "${kept}"`;
    await parent.sync();

    if (asideDirectory === undefined) return { replaced: undefined, tokens };
    await renameDurably(aside, kept, parent);
    return { replaced: kept, tokens };
  } catch (cause) {
    throw new DatabaseError(`${outcome}: ${reasonOf(cause)}; ${state}`, { cause });
  }
}

async function renameDurably(from: string, to: string, parent: FileHandle): Promise<void> {
  await rename(from, to);
  await parent.sync();
}

/**
 * Revokes the tokens of a backup that were revoked after the backup was made. Otherwise a restore would
 * make a leaked token valid again. A token that was deleted since is reported as unconfirmed.
 *
 * @param backup The path of the copy that will replace the database. No process has it open.
 * @param replaced The path of the old database. It may be missing, corrupt or unrelated, and then lacks
 *   some tokens or all.
 */
function keepRevokedTokens(backup: string, replaced: string): RestoredTokens {
  using client = new Database(backup, { readwrite: true, safeIntegers: true });
  const accepted = tokensOf(client).filter(isAccepted);
  const known = new Map(tokensIn(replaced).map((token) => [token.digest.toHex(), token]));

  const revoked = accepted.flatMap(({ digest }) => {
    const at = known.get(digest.toHex())?.revoked_at;
    return at ? [{ digest, at }] : [];
  });
  client.transaction(() => {
    for (const { digest, at } of revoked)
      client.run("UPDATE tokens SET revoked_at = ? WHERE digest = ?", [at, digest]);
  })();

  const unconfirmed = accepted.filter(({ digest }) => !known.has(digest.toHex()));
  return { ended: revoked.length, unconfirmed: unconfirmed.map(({ name }) => name) };
}

interface Row {
  readonly name: string;
  readonly digest: Uint8Array;
  readonly expires_at: bigint | null;
  readonly revoked_at: bigint | null;
}

function tokensOf(client: Database): readonly Row[] {
  return client.query<Row, []>("SELECT * FROM tokens").all();
}

/** Reads the tokens of a database. Returns none if it is missing or cannot be read. */
function tokensIn(path: string): readonly Row[] {
  if (!existsSync(path)) return [];
  try {
    using client = new Database(path, { readonly: true, safeIntegers: true });
    return tokensOf(client);
  } catch {
    // Corruption may be why it is being replaced.
    return [];
  }
}

function isAccepted({ revoked_at: revoked, expires_at: expires }: Row): boolean {
  return !revoked && (!expires || expires > BigInt(Date.now()));
}
