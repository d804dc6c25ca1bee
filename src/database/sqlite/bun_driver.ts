import { Database } from "bun:sqlite";

import type { Connection } from "./driver.ts";
import { type ConnectOptions, openDatabase } from "./opening.ts";

/** A connection of bun:sqlite: "Database" is our port. Drizzle's statements run on it. */
export class Client extends Database implements Connection {
  openReader(): Client {
    return new Client(this.filename, { readonly: true });
  }
}

/** Opens a database by bun:sqlite, as {@linkcode openDatabase} does. */
export function connect(path: string, options: ConnectOptions = {}): Client {
  return openDatabase(openFile, path, options);
}

function openFile(file: string, { readonly }: { readonly readonly: boolean }): Client {
  const mode = readonly ? { readonly } : { readwrite: true };
  return new Client(file, { ...mode, safeIntegers: true, strict: true });
}
