import { constants, Database } from "bun:sqlite";
import { statSync } from "node:fs";
import { pathToFileURL } from "node:url";

import type { Connection } from "./driver.ts";
import { readingLock } from "./exclusive_lock.ts";
import { isUnwritable } from "./failure.ts";
import { type ConnectOptions, openDatabase } from "./opening.ts";

/** A connection of bun:sqlite: "Database" is our port. Drizzle's statements run on it. */
export class Client extends Database implements Connection {
  openReader(): Client {
    return new Client(this.filename, { readonly: true });
  }
}

/**
 * Opens a database by bun:sqlite, as {@linkcode openDatabase} does. Reads one without a WAL even on
 * a file system that is full or read-only.
 */
export function connect(path: string, options: ConnectOptions = {}): Client {
  try {
    return openDatabase(openFile, path, options);
  } catch (error) {
    const { cause } = error as Error;
    if (options.access !== "read" || !isUnwritable(cause)) throw error;
    return openDatabase((file) => openAlone(file, cause), path, options);
  }
}

function openFile(file: string, { readonly }: { readonly readonly: boolean }): Client {
  const mode = readonly ? { readonly } : { readwrite: true };
  return new Client(file, { ...mode, safeIntegers: true, strict: true });
}

/**
 * Opens a file that no other process has open for reading, without the index of a WAL: SQLite cannot
 * create that on a file system that is full or read-only. It takes no locks of its own then: ours
 * keeps all others out until the connection is closed.
 *
 * @throws {unknown} `refusal`, if a WAL or a journal has content, or another process has the file open.
 */
function openAlone(file: string, refusal: unknown): Client {
  using stack = new DisposableStack();
  const lock = readingLock(file);
  if (lock === undefined) throw refusal;
  stack.use(lock);

  // From here on no other process can write one.
  const hasContent = (suffix: string) =>
    (statSync(file + suffix, { throwIfNoEntry: false })?.size ?? 0) > 0;
  if (hasContent("-wal") || hasContent("-journal")) throw refusal;

  // https://www.sqlite.org/uri.html#uriimmutable. The options of bun:sqlite have no URIs, and its
  // flags no integers past 2^53.
  const client = new Client(
    `${pathToFileURL(file)}?immutable=1`,
    constants.SQLITE_OPEN_READONLY | constants.SQLITE_OPEN_URI,
  );
  const { prepare, query } = client;
  client.prepare = ((...args) => prepare.apply(client, args).safeIntegers(true)) as typeof prepare;
  client.query = ((sql) => query.call(client, sql).safeIntegers(true)) as typeof query;

  const { close } = client;
  const locked = stack.move();
  client.close = (throwOnError) => {
    close.call(client, throwOnError);
    locked[Symbol.dispose]();
  };
  return client;
}
