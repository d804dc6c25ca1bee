// The Worker that copies a database: VACUUM blocks its thread until it is done.
import { Database } from "bun:sqlite";
import type { BackupRequest, BackupResponse } from "./backup.ts";

declare const self: Worker;

self.addEventListener("message", ({ data: request }: MessageEvent<BackupRequest>) => {
  self.postMessage(copy(request));
});

function copy({ path, target }: BackupRequest): BackupResponse {
  try {
    using client = new Database(path, { readonly: true });
    client.run("PRAGMA busy_timeout = 5000");
    client.run("VACUUM INTO ?", [target]);
    using copied = new Database(target, { readonly: true });
    const { plants } = copied.query("SELECT count(*) AS plants FROM plants").get() as { plants: number };
    return { plants };
  } catch (error) {
    return { failure: error instanceof Error ? error.message : String(error) };
  }
}
