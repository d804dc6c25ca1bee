import { withDeadline } from "../../async/timers.ts";
import type { ReadOptions } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import type { BackgroundApi } from "./background_worker.ts";
import { identityOf } from "./open_files.ts";
import { reasonOfCall, workerCalls } from "./worker_calls.ts";

/** Starts the Worker for what takes SQLite long: it copies and checks whole files. */
export function startReading(onProgress?: ReadOptions["onProgress"]) {
  // Inside the executable the URL of every file is in the root, where `--root` of the build puts
  // the Worker.
  const worker = new Worker(new URL("./background_worker.js", import.meta.url));
  return workerCalls<BackgroundApi>(worker, { onEvent: onProgress });
}

/**
 * Checks a database once, in a Worker, even while a server writes to it.
 *
 * @param corrupt The message if it is corrupt, made of what was found.
 * @param onProgress Called after each step.
 * @throws {DatabaseError} If it is corrupt, or the check itself failed.
 */
export async function checkFile(
  path: string,
  corrupt: (finding: string) => string,
  onProgress: ReadOptions["onProgress"],
) {
  const { call, terminate } = startReading(onProgress);
  const checked = await call("check", path)
    .catch((error: Error) => {
      throw new DatabaseError(reasonOfCall(error));
    })
    .finally(terminate);

  if (checked?.finding !== undefined) throw new DatabaseError(corrupt(checked.finding));
  return checked;
}

/** How long closing the Worker's connections may take, in milliseconds. */
const CLOSE_TIMEOUT_MS = 1_000;

/** The Worker beside a writer, which makes its checkpoint passes and checks its file. */
export type Background = ReturnType<typeof startBackground>;

/** Starts the Worker beside a writer, which ends with the thread that starts it. */
export function startBackground() {
  const { call, failed, terminate } = startReading();
  let closed: Promise<void> | undefined;

  async function close(): Promise<void> {
    // After a crash there is nothing to close.
    await withDeadline(call("close"), CLOSE_TIMEOUT_MS, () => {}).catch(() => {});
    terminate();
  }

  return {
    /** Opens a database that another connection of this process has open for writing. */
    open: (path: string) => call("open", path),
    /** Moves what is in the WAL now into the database. Can be tried again after a failure. */
    pass: () => call("pass"),
    /** Checks a database beside a server: see {@linkcode BackgroundApi}. */
    check: (path: string, identity: string) => call("check", path, identity),
    /**
     * Ends a check after the step it is in, and closes the connections, without a checkpoint.
     * Resolves after a second even if the disk hangs.
     */
    close: () => (closed ??= close()),
    /** Resolves if the Worker crashes. */
    failed,
  };
}

/** When the check begins, in milliseconds: a start has the processors to itself. */
const CHECK_DELAY_MS = 1_000;

/** Receives the results of a check. */
export interface CheckObserver {
  onInfo(message: string, properties: Record<string, unknown>): void;
  onWarning(message: string, reason: string): void;
  onCorrupt(finding: string): void;
}

/** Checks a database for corruption once, soon after a server has opened it. */
export function scheduleCheck(
  background: Background,
  path: string,
  { onInfo, onWarning, onCorrupt }: CheckObserver,
): void {
  // It was opened just now. Later there can be another one at the path, or none.
  const identity = identityOf(path) ?? "";

  async function check(): Promise<void> {
    const begin = performance.now();
    onInfo("Integrity check started", {});

    try {
      const checked = await background.check(path, identity);
      if (checked === undefined) return;
      if (checked.finding !== undefined) return onCorrupt(checked.finding);
      const durationMs = Math.round(performance.now() - begin);
      onInfo("Integrity check passed", { ...checked, durationMs });
    } catch (error) {
      onWarning("Integrity check not finished", reasonOfCall(error as Error));
    }
  }

  setTimeout(check, CHECK_DELAY_MS).unref();
}
