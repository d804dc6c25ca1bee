import { FFIType } from "bun:ffi";
import { constants, Database } from "bun:sqlite";
import { closeSync, openSync, statSync } from "node:fs";
import { pathToFileURL } from "node:url";

import { cLibrary } from "./c_library.ts";
import type { Driver, SqliteConnection } from "./driver.ts";
import { isUnwritable } from "./errors.ts";
import { readingLock } from "./exclusive_lock.ts";
import { type ConnectOptions, openDatabase } from "./opening.ts";
import { databaseFile } from "./path.ts";

/** A connection of bun:sqlite: "Database" is our port. Drizzle's statements run on it. */
export class Client extends Database implements SqliteConnection {
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
    return openDatabase(BUN, path, options);
  } catch (error) {
    const { cause } = error as Error;
    if (options.access !== "read" || !isUnwritable(cause)) throw error;
    // SQLite follows links by itself, and keeps the WAL beside what they lead to.
    const open = () => openAlone(databaseFile(path), cause);
    return openDatabase({ ...BUN, open }, path, options);
  }
}

const BUN: Driver<Client> = {
  open(file, { readonly }) {
    const mode = readonly ? { readonly } : { readwrite: true };
    return new Client(file, { ...mode, safeIntegers: true, strict: true });
  },

  disableCopyOnWrite(path) {
    const library = cLibrary({
      ioctl: { args: [FFIType.i32, FFIType.u64, FFIType.ptr], returns: FFIType.i32 },
    });
    const file = openSync(path, "r");
    const flags = new Uint32Array(2);
    library?.ioctl(file, FS_IOC_GETFLAGS, flags);
    flags[0] = (flags[0] ?? 0) | FS_NOCOW_FL;
    library?.ioctl(file, FS_IOC_SETFLAGS, flags);
    closeSync(file);
  },
};

/** From `linux/fs.h`. */
const FS_IOC_GETFLAGS = 0x8008_6601;
const FS_IOC_SETFLAGS = 0x4008_6602;
const FS_NOCOW_FL = 0x80_0000;

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
