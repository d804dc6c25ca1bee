import { withDeadline } from "../../async/deadline.ts";
import type { ServingOptions } from "../adapter.ts";
import type { Database, PlantStore } from "../database.ts";
import { checkpointMetrics } from "./checkpoint.ts";
import { backgroundCheck } from "./integrity.ts";
import type { WorkerApi } from "./worker.ts";
import { deserializeError, type SerializedError, workerCalls } from "./worker_calls.ts";
import { allTokens, decodeOutcomes, encodeBatch } from "./worker_messages.ts";

/**
 * Opens a SQLite database in a Worker: bun:sqlite is synchronous, and a hanging disk must not keep the server's thread
 * from responding. Soon after, a check of the whole file for corruption begins in another Worker.
 *
 * @throws {DatabaseError} If the file cannot be used.
 */
export async function openSqliteWorker(path: string, options: ServingOptions = {}): Promise<Database> {
  const { closeTimeoutMs = 2_000, onWarning = () => {}, onInfo = () => {} } = options;
  let failures = 0;
  // Inside the executable the URL of every file is in the root, where `--root` of the build puts the Worker.
  const worker = workerCalls<WorkerApi>(new Worker(new URL("./worker.js", import.meta.url)), {
    decode: decodeOutcomes,
    onNews(checkpointError: SerializedError) {
      failures++;
      onWarning("Checkpoint failed", deserializeError(checkpointError));
    },
  });
  const { call, send } = worker;
  const warning = await call("open", path).catch((error) => {
    worker.terminate();
    throw error;
  });
  if (warning !== undefined) onWarning(warning);
  const onCorrupt = (finding: string) => void call("reportCorruption", finding);
  const stopCheck = await backgroundCheck(path, { onInfo, onWarning, onCorrupt });

  async function close(): Promise<void> {
    // The last connection to close removes the WAL: it has to be the one that may write.
    await stopCheck();
    if (!worker.hasCrashed()) await call("close");
  }

  return {
    plants: {
      add: (plants, { timeoutMs }) => send(encodeBatch(plants, timeoutMs)) as ReturnType<PlantStore["add"]>,
      probe: () => call("probe"),
    },
    tokens: {
      list: () => allTokens((row) => call("page", row)),
      revision: () => call("revision"),
      add: (token) => call("add", token),
      revoke: (name, at) => call("revoke", name, at),
      delete: (name) => call("delete", name),
      prune: (at) => call("prune", at),
      recordUses: (uses) => call("recordUses", uses),
    },
    pages: () => readPages(path),
    metrics: () => checkpointMetrics(path, failures),
    failed: worker.failed,
    async [Symbol.asyncDispose]() {
      // Nothing is lost if the disk hangs: acknowledged plants are on it, and the next start reads the WAL.
      const notClosed = () => onWarning("Database not closed: the disk does not respond");
      await withDeadline(close(), closeTimeoutMs, notClosed).finally(worker.terminate);
    },
  };
}

/** With another connection, on this thread: no server reads plants. */
async function* readPages(path: string) {
  const { openPlants } = await import("./plants.ts");
  await using reader = openPlants(path);
  yield* reader.pages();
}
