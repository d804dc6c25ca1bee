// The Worker that moves pages from the WAL into the database, while the writer's Worker goes on.
import type { Database } from "bun:sqlite";
import { fdatasyncSync, openSync } from "node:fs";
import type { CheckpointReport, CheckpointRequest } from "./checkpoint.ts";
import { connectAgain } from "./connection.ts";
import { FailedSyncError } from "./errors.ts";
import { closeWithoutCheckpoint, type FailStop, failStopOf } from "./fail_stop.ts";
import { serializeError } from "./worker_messages.ts";

declare const self: Worker;

let opened: { client: Database; failStop: FailStop; pass: () => void } | undefined;

self.addEventListener("message", ({ data: request }: MessageEvent<CheckpointRequest>) => {
  self.postMessage(handle(request));
});

function handle(request: CheckpointRequest): CheckpointReport {
  try {
    if (request.type === "open") open(request.path);
    else if (request.type === "pass") opened?.failStop.run(opened.pass);
    else close();
    return { type: "done" };
  } catch (error) {
    return { type: opened?.failStop.isFailed() ? "stopped" : "failed", error: serializeError(error) };
  }
}

function open(path: string): void {
  const client = connectAgain(path);
  const passive = client.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  const sync = syncOf(path);
  const pass = () => {
    const [[busy] = []] = passive.values();
    // Another process that makes a checkpoint syncs what it moves.
    if (busy === 0n) sync();
  };
  opened = { client, failStop: failStopOf(client), pass };
}

/**
 * SQLite syncs the database only in the checkpoint that moves the last page of the WAL. That one is the writer's, and would
 * wait for all pages that were moved before it.
 */
function syncOf(path: string): () => void {
  // Never closed: closing any descriptor of a file drops the process's locks on it, and so SQLite's own.
  const file = openSync(path, "r");
  return () => {
    try {
      fdatasyncSync(file);
    } catch (cause) {
      throw new FailedSyncError((cause as Error).message, { cause });
    }
  };
}

/** The writer's connection may be closed already, after a failure: then this one is the last, and SQLite would checkpoint. */
function close(): void {
  if (opened !== undefined && !opened.failStop.isFailed()) closeWithoutCheckpoint(opened.client);
}
