import { Database } from "bun:sqlite";
import { statSync } from "node:fs";
import { walFile } from "./wal_file.ts";

/**
 * Closes a connection and leaves its database as it is: the file, and the WAL beside it. Otherwise the last connection
 * to be closed moves the WAL into the file and removes it. What is in the WAL after a failed fsync is not on the disk,
 * and a damaged file is evidence, and not to be written to.
 *
 * That checkpoint needs an exclusive lock on the file, and SQLite gives none while another connection of the process
 * reads a WAL; one that is opened for reading only cannot take it itself. bun:sqlite has no setting for it.
 */
export function closeWithoutCheckpoint(client: Database): void {
  const reader = hasWal(client.filename) ? openReader(client.filename) : undefined;
  // With `true` its statements are finalized. Else it stays open for them, and Bun checkpoints it when the Worker ends.
  client.close(true);
  reader?.close(true);
}

/** Without a WAL there is nothing to move, and the reader would leave an empty one. */
function hasWal(path: string): boolean {
  return (statSync(walFile(path), { throwIfNoEntry: false })?.size ?? 0) > 0;
}

function openReader(path: string): Database | undefined {
  let reader: Database | undefined;
  try {
    reader = new Database(path, { readonly: true });
    // The first read takes the shared lock, which a connection to a WAL keeps. A page that is damaged changes nothing.
    reader.query("PRAGMA application_id").values();
  } catch {
    // Without a file, or a descriptor for it, SQLite closes as it always does.
  }
  return reader;
}
