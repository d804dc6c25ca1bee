import type { ReadOptions, ServingOptions } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import type { ReaderApi } from "./background_worker.ts";
import { identityOf } from "./files.ts";
import { reasonOfCall, workerCalls } from "./worker_calls.ts";

/**
 * Starts the Worker that reads whole files, to check or to copy them. It keeps the process alive
 * until it is terminated.
 */
export function startReader(onProgress?: ReadOptions["onProgress"]) {
  const worker = new Worker(new URL("./background_worker.js", import.meta.url));
  return workerCalls<ReaderApi>(worker, { onEvent: onProgress });
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
  const reader = startReader(onProgress);
  const checked = await reader
    .call("check", path)
    .catch((error: Error) => {
      throw new DatabaseError(reasonOfCall(error));
    })
    .finally(reader.terminate);

  if (checked?.finding !== undefined) throw new DatabaseError(corrupt(checked.finding));
  return checked;
}

/** When the check begins, in milliseconds: a start has the processors to itself. */
const DELAY_MS = 1_000;

/**
 * Checks a database for corruption once, soon after a server has opened it. Resolves once the
 * Worker that will do it runs: Bun ends a process that has no file descriptors for a new Worker,
 * and clients could take the last ones until then.
 *
 * @param onCorrupt Called with what was found, when the file is corrupt.
 * @returns Ends the check, and resolves when its connection is closed.
 */
export async function backgroundCheck(
  path: string,
  { onInfo, onWarning }: Required<Pick<ServingOptions, "onInfo" | "onWarning">>,
  onCorrupt: (finding: string) => void,
): Promise<() => Promise<void>> {
  // It was opened just now. Later there can be another one at the path, or none.
  const file = identityOf(path) ?? "";
  const reader = startReader();
  let checking: Promise<void> | undefined;

  // If the Worker has crashed, the check reports it.
  await reader.call("start").catch(() => {});

  async function check(): Promise<void> {
    const begin = performance.now();
    onInfo("Integrity check started", {});

    try {
      const checked = await reader.call("check", path, file).finally(reader.terminate);
      if (checked === undefined) return;
      if (checked.finding !== undefined) return onCorrupt(checked.finding);
      onInfo("Integrity check passed", {
        ...checked,
        durationMs: Math.round(performance.now() - begin),
      });
    } catch (error) {
      onWarning("Integrity check not finished", reasonOfCall(error as Error));
    }
  }

  const timer = setTimeout(() => (checking = check()), DELAY_MS);
  timer.unref();

  return async () => {
    clearTimeout(timer);
    const stopped = reader.call("stop").catch(() => {});
    // A Worker whose check has ended does not respond.
    await (checking ?? stopped);
    reader.terminate();
  };
}
