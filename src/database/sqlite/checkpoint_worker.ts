// The Worker that moves pages from the WAL into the database while the writer's Worker adds plants.
import { fdatasyncSync, openSync } from "node:fs";

import type { Client } from "./bun_driver.ts";
import { FailedSyncError } from "./errors.ts";
import { closeWithoutCheckpoint, type FailStop, failStopOf } from "./markers.ts";
import { connect } from "./opening.ts";
import { reportFailure, serveCalls } from "./worker_calls.ts";

let opened: { client: Client; failStop: FailStop; pass: () => void } | undefined;

const api = {
  open(path: string): void {
    const client = connect(path, { access: "write" });
    // Reported before the failed pass is: the writer must not begin the WAL anew after it.
    opened = { client, failStop: failStopOf(client, reportFailure), pass: passOf(client) };
  },
  pass: (): void => opened?.failStop.run(opened.pass),
  close(): void {
    // After a failure of the writer this connection may be the last one, and SQLite would make a
    // checkpoint.
    if (opened !== undefined && !opened.failStop.isFailed()) closeWithoutCheckpoint(opened.client);
  },
};

/** The methods of this Worker. */
export type CheckpointApi = typeof api;

serveCalls(api);

/**
 * Moves pages and syncs the database. SQLite itself syncs it only in the checkpoint that moves the
 * last page of the WAL. That one is the writer's, and would wait for all pages moved before.
 */
function passOf(client: Client): () => void {
  const passive = client.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  // Never closed: closing any descriptor of a file drops the process's locks on it, and so SQLite's
  // own.
  const file = openSync(client.filename, "r");
  return () => {
    const [[busy] = []] = passive.values();
    // Another process that makes a checkpoint syncs what it moves.
    if (busy !== 0n) return;

    try {
      fdatasyncSync(file);
    } catch (cause) {
      throw new FailedSyncError((cause as Error).message, { cause });
    }
  };
}
