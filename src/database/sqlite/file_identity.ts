import { statSync } from "node:fs";
import { PlantStoreError } from "../../errors.ts";
import { walFile } from "./database_file.ts";

/**
 * Watches that a database's files are still the ones that were opened. SQLite would go on writing into files that
 * were unlinked or replaced, and those writes would be lost.
 *
 * @param path The database, open and in WAL mode.
 * @returns A check that throws `storage_unavailable` once a file is another one; two system calls.
 */
export function fileIdentity(path: string): () => void {
  // A WAL that is deleted takes with it what is not checkpointed yet.
  const opened = [path, walFile(path)].map((file) => ({ file, identity: identityOf(file) }));
  return () => {
    for (const { file, identity } of opened) {
      if (identityOf(file) !== identity) {
        throw new PlantStoreError("storage_unavailable", "storage is gone; send the plant again later", {
          cause: new Error(`"${file}" was removed or replaced while it was open`),
        });
      }
    }
  };
}

function identityOf(file: string): string | undefined {
  const stats = statSync(file, { throwIfNoEntry: false });
  return stats && `${stats.dev}:${stats.ino}`;
}
