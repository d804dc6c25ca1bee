import { Database } from "bun:sqlite";

import type { SqlClient } from "./driver.ts";

/** "Database" is our port: everywhere in this room, the class of bun:sqlite is the client. */
export class Client extends Database implements SqlClient {
  all(sql: string): unknown[] {
    return this.query(sql).all();
  }
}
