import type { Database } from "../database.ts";
import { keysetPages } from "../keyset.ts";
import { connect } from "./connection.ts";
import { plantReader } from "./plants.ts";

/**
 * Opens a plant-store's database for reading, also while a server writes to it. Makes no database and changes none.
 *
 * @throws {DatabaseError} If there is no such file, or it is not a plant-store's, or a newer one's.
 */
export function openSqliteReader(path: string): Pick<Database, "pages"> & AsyncDisposable {
  const client = connect(path, { access: "read" });
  const pageFrom = plantReader(client);
  return {
    pages: () => keysetPages(pageFrom),
    [Symbol.asyncDispose]: async () => client.close(),
  };
}
