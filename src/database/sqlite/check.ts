// The third of three checks for corruption: `plant-store check` reads the whole file in a Worker, and removes
// the marker of a sound file. `opening_check.ts` runs at each opening.
import { withAbort } from "../../async/timers.ts";
import type { ReadOptions } from "../adapter.ts";
import { DatabaseError } from "../database.ts";
import { howToRunOn } from "./advice.ts";
import type { BackgroundApi } from "./background_worker.ts";
import { withFileError } from "./errors.ts";
import { corruptionMarker } from "./markers.ts";
import { databaseFile } from "./path.ts";
import { reasonOfCall, startWorker } from "./worker_calls.ts";

/**
 * Checks a file, and removes its corruption marker if the file is sound. If another process marks the file
 * during the check, the file counts as corrupt.
 *
 * @throws {DatabaseError} If the file is corrupt, or the check itself failed.
 */
export async function checkSqlite(path: string, { stop }: Pick<ReadOptions, "stop">) {
  const marker = withFileError("open", path, () => corruptionMarker(path));
  const corrupt = (finding: string) =>
    `"${path}" is corrupt: ${finding}; to save what can be read before you restore a backup, ${howToRunOn("export", databaseFile(path))} > rest.ndjson`;
  const before = marker.content();

  // A step of SQLite can take seconds. After a signal, do not wait for it.
  const result = await withAbort(checkFile(path, corrupt), stop);
  if (result === undefined) return undefined;

  withFileError("remove the marker of", path, () => marker.clear(before));
  const finding = marker.finding();
  if (finding !== undefined) throw new DatabaseError(corrupt(finding));
  return result;
}

/**
 * Checks a database in a Worker, even while a server writes to it.
 *
 * @param corrupt Returns the message for a finding of corruption.
 * @throws {DatabaseError} If the database is corrupt, or the check itself failed.
 */
export async function checkFile(path: string, corrupt: (finding: string) => string) {
  const { call, terminate } = startWorker<BackgroundApi>("background");
  const checked = await call("check", path)
    .catch((error: Error) => {
      throw new DatabaseError(reasonOfCall(error));
    })
    .finally(terminate);

  if (checked?.finding !== undefined) throw new DatabaseError(corrupt(checked.finding));
  return checked;
}
