import { renameSync, rmSync } from "node:fs";

import { DatabaseError } from "../database.ts";
import { Client } from "./bun_driver.ts";
import { CorruptError, corruptionIn, isFailedSync, toPlantStoreError } from "./errors.ts";
import { createPrivateFile, databaseFile, identityOf, readTrusted } from "./files.ts";
import { closeLeavingWal, markUnsynced } from "./wal.ts";

/**
 * How long to wait between two looks at the corruption marker, in milliseconds. Another process
 * needs seconds to find corruption; a look before every batch takes a sixth of a lone client's
 * time.
 */
const LOOK_MS = 100;

/** Runs the calls of a connection until it fails for good. */
export type FailStop = ReturnType<typeof failStopOf>;

/**
 * Makes the fail-stop of a connection. After a failed fsync, the page cache differs from the disk,
 * and a corrupt file must not be written to. So the connection is closed at once, without a
 * checkpoint: Bun would make one at the end of the Worker or the process.
 *
 * @param onFailure Called once the connection is closed, before the call that failed throws.
 */
export function failStopOf(client: Client, onFailure: (failure: Error) => void) {
  const marker = corruptionMarker(client.filename);
  let lookedAt = Number.NEGATIVE_INFINITY;
  let failure: unknown;

  /**
   * Takes what SQLite or a check says, and returns it in words for clients. A failed fsync and
   * corruption are marked beside the file, and end all calls.
   */
  function report(error: unknown): unknown {
    const translated = toPlantStoreError(error);
    const finding = corruptionIn(error);
    const isUnsynced = isFailedSync(error);

    if (finding !== undefined) marker.write(finding);
    if (isUnsynced) markUnsynced(client.filename);
    if (finding !== undefined || isUnsynced) fail(translated);

    return translated;
  }

  /** Ends all calls with a failure that is marked already, or needs no marker. */
  function fail(reason: unknown): void {
    if (failure !== undefined) return;

    failure = reason;
    closeWithoutCheckpoint(client);
    onFailure(reason as Error);
  }

  /** Another process may have found the file to be corrupt. */
  function requireStillUnmarked(): void {
    const now = performance.now();
    if (now - lookedAt < LOOK_MS) return;

    lookedAt = now;
    const finding = marker.finding();
    if (finding !== undefined) throw new CorruptError(finding);
  }

  /**
   * Runs a call of SQLite and translates what it throws. Throws the failure, without running it,
   * once there is one.
   *
   * @throws {PlantStoreError} `storage_unavailable` for a state of the storage.
   */
  function run<Result>(call: () => Result): Result {
    if (failure !== undefined) throw failure;

    try {
      requireStillUnmarked();
      return call();
    } catch (error) {
      throw report(error);
    }
  }

  return { run, report, fail, isFailed: () => failure !== undefined };
}

/** How much of a corruption marker is read, in bytes. */
const MARKER_BYTES = 4_096;

/**
 * A file beside a database, `plants.db-corrupt`, that marks the file which the path has now as
 * corrupt: a corrupt file cannot be trusted with that itself. A backup that is copied to the path
 * later is not marked.
 */
export function corruptionMarker(path: string) {
  const file = databaseFile(path);
  const identity = identityOf(path);
  const suffix = "-corrupt";
  const content = () => readTrusted(file, suffix, MARKER_BYTES);

  return {
    /** The content of the marker, for `clear`. */
    content,

    /** The corruption that was found, in one line; `undefined` if none is known. Reads the disk. */
    finding(): string | undefined {
      try {
        const marked = JSON.parse(content() ?? "{}") as {
          readonly file?: string;
          readonly finding?: string;
        };
        return marked.file === identity ? marked.finding : undefined;
      } catch {
        // A crash cut it off: the next check finds the corruption again.
        return undefined;
      }
    },

    /** Marks the file if possible. Otherwise the next check finds the corruption again. */
    write(finding: string): void {
      if (identity === undefined) return;

      const line = finding.replaceAll("\n", " ").slice(0, MARKER_BYTES / 8);
      // As JSON, which an operator may read.
      const marked = { file: identity, finding: line, foundAt: new Date().toISOString() };
      const draft = `${file}${suffix}-new`;

      try {
        try {
          rmSync(draft, { force: true });
          createPrivateFile(draft, `${JSON.stringify(marked)}\n`);
          // Replaces the marker as a whole: on a full disk the old one stays.
          renameSync(draft, file + suffix);
        } finally {
          rmSync(draft, { force: true });
        }
      } catch {
        // The disk may be full or read-only by now.
      }
    },

    /** Removes the marker if it still has this content, and the path still has the same file. */
    clear(before: string | undefined): void {
      if (before === undefined || content() !== before || identityOf(path) !== identity) return;
      rmSync(file + suffix, { force: true });
    },
  };
}

/**
 * Requires that a file is not marked as corrupt. Only a check of the whole file, or another file,
 * ends that.
 *
 * @param advice What to do about it.
 * @throws {DatabaseError} If it is marked.
 */
export function requireUnmarked(path: string, advice: string): void {
  const finding = corruptionMarker(path).finding();
  if (finding !== undefined) throw new DatabaseError(`it is corrupt (${finding}); ${advice}`);
}

/** Closes a connection and leaves the file and its WAL as they are. */
export function closeWithoutCheckpoint(client: Client): void {
  const { filename } = client;
  // `close(true)` finalizes statements; otherwise the connection stays open, and Bun checkpoints it
  // when the Worker ends.
  const close = () => client.close(true);
  closeLeavingWal(filename, close, () => new Client(filename, { readonly: true }));
}
