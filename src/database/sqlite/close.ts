import { Database } from "bun:sqlite";
import { walBytes } from "./database_file.ts";

/**
 * Closes a connection and leaves its database as it is: the file, and the WAL beside it. Otherwise the last connection
 * to be closed moves the WAL into the file and removes it. What is in the WAL after a failed fsync is not on the disk,
 * and a damaged file is evidence, and not to be written to.
 *
 * That checkpoint needs an exclusive lock on the file, and SQLite gives none while another connection of the process
 * reads a WAL; one that is opened for reading only cannot take it itself. bun:sqlite has no setting for it.
 */
export function closeWithoutCheckpoint(client: Database): void {
  // Without a WAL there is nothing to move, and the reader would leave an empty one.
  const reader = walBytes(client.filename) > 0 ? openReader(client.filename) : undefined;
  // With `true` its statements are finalized. Else it stays open for them, and Bun checkpoints it when the Worker ends.
  client.close(true);
  reader?.close(true);
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
