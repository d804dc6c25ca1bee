import { Database } from "bun:sqlite";
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { addPlants } from "./add_plants.ts";
import { TOKEN } from "./client.ts";
import { fern, OPTIONAL_TEXT, TEXT } from "./plants.ts";
import { emptyDirectory, runToEnd } from "./program.ts";

const PAGE_BYTES = 4_096;

/** Makes a database with so many plants and a few tokens, in one file that is not in use. */
export function makeLargeDatabase(path: string, plants: number): void {
  using client = connect(path);
  addPlants(client)(
    Array.from({ length: plants }, (_, index) => {
      const tag = index % 3 === 2 && { [OPTIONAL_TEXT]: "indoor" };
      return fern({ id: (index + 1) * 1_000, [TEXT]: `Monstera deliciosa ${index + 1}`, ...tag });
    }),
  );
  client.run(
    `INSERT INTO tokens (name, digest, created_at, revoked_at)
     WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids LIMIT 5)
     SELECT 'token ' || id, randomblob(32), id, id FROM ids`,
  );
  client.run("PRAGMA wal_checkpoint(TRUNCATE)");
}

/** A directory with a database of so many plants and a backup of it; gone at the end of the scope. */
export function largeDatabase(plants: number) {
  const directory = emptyDirectory();
  const file = (name: string) => join(directory.path, name);
  const database = file("plants.db");
  const backup = file("backup.db");

  makeLargeDatabase(database, plants);
  copyFileSync(database, backup);
  const options = { cwd: directory.path, env: { AUTH_TOKENS: TOKEN } };

  return {
    file,
    database,
    /** How to start a server on it. */
    options,
    /** Runs a command on it, by default a server. */
    call: (...args: string[]) => runToEnd({ ...options, args }),
    /** Makes the database what it was at first, with no file beside it. */
    restore(): void {
      for (const suffix of ["-wal", "-shm", "-corrupt"]) rmSync(database + suffix, { force: true });
      copyFileSync(backup, database);
    },

    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
}

/** The ways in which {@linkcode damage} damages a file, each of which a check has to find. */
export const DAMAGES = {
  "a zeroed page in the middle": (pages) => pages.leaf.fill(0),
  "flipped bits in a page in the middle": (pages) => flip(pages.leaf, 8, 200),
  "a zeroed first page of plants": (pages) => pages.first.fill(0),
  "zeroed pages at both ends and in the middle": ({ first, leaf, last }) =>
    [first, leaf, last].forEach((page) => page.fill(0)),
  "a zeroed table of the revision of tokens": (pages) => pages.tokenRevision.fill(0),
  "a page in the place of another": (pages) => pages.leaf.set(pages.other),
  "an id that is out of order": ({ leaf }) => flip(leaf, cellOf(leaf, 0) + 2, 1),
  "a name that is no text": ({ leaf }) => (leaf[nameTypeOf(leaf)] = 0),
  // A blob's type is one less than that of a text of the same length.
  "a name that is a blob": ({ leaf }) =>
    leaf.writeUInt8(leaf.readUInt8(nameTypeOf(leaf)) - 1, nameTypeOf(leaf)),
  "a wrong key of an inner page": ({ inner }) => flip(inner, cellOf(inner, 5) + 5, 1),
  "a damaged page of the index of tokens": (pages) => pages.tokensIndex.fill(0),
} as const satisfies Record<string, (pages: Pages) => unknown>;

/** A way to damage a file. */
export type Damage = keyof typeof DAMAGES;

/** Damages pages of a database of {@linkcode makeLargeDatabase}. A server that has it open finds no others. */
export function damage(path: string, what: Damage): void {
  const bytes = readFileSync(path);
  DAMAGES[what](pagesOf(bytes, path));
  // In place: a file that is made anew is empty for a moment.
  writeFileSync(path, bytes, { flag: "r+" });
}

type Pages = ReturnType<typeof pagesOf>;

/** Pages of a file's bytes: changing one changes them. */
function pagesOf(bytes: Buffer, path: string) {
  using client = new Database(path, { readonly: true });
  const rootOf = (name: string) =>
    Number(client.query("SELECT rootpage FROM sqlite_schema WHERE name = ?").values(name)[0]?.[0]);
  const page = (number: number) => bytes.subarray((number - 1) * PAGE_BYTES, number * PAGE_BYTES);
  const child = (inner: Buffer, index: number) => page(inner.readUInt32BE(cellOf(inner, index)));
  let inner = page(rootOf("plants"));
  let last = inner;

  // The right-most child is in the header of a page.
  while (isInner(last)) last = page(last.readUInt32BE(8));
  while (isInner(child(inner, 0))) inner = child(inner, 0);
  const middle = Math.floor(inner.readUInt16BE(3) / 2);

  return {
    /** A page of plants that leads to pages, the first above those that hold plants. */
    inner,
    /** A page that holds plants, from the middle of those. */
    leaf: child(inner, middle),
    /** The one that holds the plants of the lowest ids. */
    first: child(inner, 0),
    /** The one that holds the plants of the highest ids. */
    last,
    /** The one before the leaf in the middle. */
    other: child(inner, middle - 1),
    /** The table that counts the changes of tokens. */
    tokenRevision: page(rootOf("token_revision")),
    /** The index of the names of tokens. */
    tokensIndex: page(rootOf("sqlite_autoindex_tokens_1")),
  };
}

function isInner(page: Buffer): boolean {
  return page[0] === 5;
}

/** Where a cell begins in its page: https://www.sqlite.org/fileformat2.html#b_tree_pages */
function cellOf(page: Buffer, index: number): number {
  return page.readUInt16BE((isInner(page) ? 12 : 8) + 2 * index);
}

/**
 * Where a leaf's first cell has the type of its name: behind its own size, its id, the header's
 * size and the id's type.
 */
function nameTypeOf(leaf: Buffer): number {
  const cell = cellOf(leaf, 0);
  let at = cell + 1;
  while ((leaf[at] as number) >= 0x80) at++;
  return at + 3;
}

function flip(page: Buffer, from: number, count: number): void {
  for (let at = from; at < from + count; at++) page[at] = (page[at] as number) ^ 0xff;
}
