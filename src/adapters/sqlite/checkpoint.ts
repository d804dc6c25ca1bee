import type { Database } from "bun:sqlite";

/** After how many pages of WAL to checkpoint: fewer checkpoints, fewer writes for random ids. About 16 MB. */
const PAGES = 4_000;

/**
 * Makes the checkpoint of a database that has `wal_autocheckpoint` off. SQLite's own one hides a failed fsync; this one
 * throws it.
 *
 * @returns To be called after a commit: moves the WAL into the database when enough has gathered since the last time.
 */
export function checkpointer(client: Database): () => void {
  const measure = client.prepare("PRAGMA wal_checkpoint(NOOP)");
  const checkpoint = client.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  let due = PAGES;
  return () => {
    const pages = pagesOf(measure.values());
    if (pages < due) {
      // The WAL starts from its beginning again once a checkpoint has moved all of it.
      if (pages < PAGES) due = PAGES;
      return;
    }
    // A reader can hold it back; then the next try is worth making after as many pages more.
    checkpoint.values();
    due = pages + PAGES;
  };
}

/** The pragma's row: busy, pages in the WAL, pages moved. */
function pagesOf(rows: unknown[][]): number {
  return Number(rows[0]?.[1] ?? 0);
}
