import { FFIType } from "bun:ffi";
import { Database } from "bun:sqlite";
import { closeSync, openSync } from "node:fs";

import { cLibrary } from "./c_library.ts";
import type { Driver, SqliteConnection } from "./driver.ts";
import { type ConnectOptions, openDatabase } from "./opening.ts";

/** A connection of bun:sqlite, which Drizzle uses too. Not named `Database`, because our port is. */
export class Client extends Database implements SqliteConnection {
  /** Opens a read-only connection to the same file. */
  openReader(): Client {
    return new Client(this.filename, { readonly: true });
  }
}

/** Opens a database with bun:sqlite: see {@linkcode openDatabase}. */
export function connect(path: string, options: ConnectOptions = {}): Client {
  return openDatabase(BUN, path, options);
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
