import { spawnSync } from "node:child_process";
import type * as NodeSqlite from "node:sqlite";

import {
  type ColumnValue,
  columnValue,
  type Plant,
  PLANT_FIELDS,
  plantOfRow,
} from "../../plant/plant.ts";
import type { Driver, PlantRows, Query, SqliteConnection } from "./driver.ts";

// Not an `import`: an older runtime would exit before it can say which versions work. Bun 1.1 lacks the
// function too.
const sqlite = process.getBuiltinModule?.("node:sqlite") as typeof NodeSqlite | undefined;
if (sqlite === undefined) {
  throw new Error(
    "Cannot use plant-store/sqlite here: there is no node:sqlite; it needs Node 22.13, Deno 2.2.3, Bun 1.4 or newer",
  );
}
const { DatabaseSync } = sqlite;

/** A connection of node:sqlite, in Node, Deno or Bun. */
interface NodeConnection extends SqliteConnection {
  /** Compiles a statement that reads integers exactly. */
  prepare(sql: string): NodeSqlite.StatementSync;
}

/** The driver with node:sqlite. */
export const NODE: Driver<NodeConnection> = {
  open: openNode,
  // Node has no ioctl(2).
  disableCopyOnWrite: (path) => void spawnSync("chattr", ["+C", path], { stdio: "ignore" }),
};

function openNode(file: string, { readonly }: { readonly readonly: boolean }): NodeConnection {
  const database = new DatabaseSync(file, { readOnly: readonly });
  const queries = new Map<string, Query>();

  function prepare(sql: string): NodeSqlite.StatementSync {
    const statement = database.prepare(sql);
    // Otherwise node:sqlite refuses or rounds integers above 2^53.
    statement.setReadBigInts(true);
    return statement;
  }

  function query(sql: string): Query {
    const known = queries.get(sql);
    if (known !== undefined) return known;

    const statement = prepare(sql);
    const all = () => statement.all();
    const made = { all, values: () => all().map((row) => Object.values(row as object)) };
    queries.set(sql, made);
    return made;
  }

  function rollBack(): void {
    try {
      query("ROLLBACK").all();
    } catch {
      // SQLite has already rolled back, as it does on a full disk.
    }
  }

  return {
    filename: file,
    prepare,
    exec: (sql) => database.exec(sql),
    query,
    transaction: (run) => ({
      // Not `exec`: on Deno its errors have no code.
      immediate(...args) {
        query("BEGIN IMMEDIATE").all();
        try {
          const result = run(...args);
          query("COMMIT").all();
          return result;
        } catch (error) {
          rollBack();
          throw error;
        }
      },
    }),
    openReader: () => openNode(file, { readonly: true }),
    [Symbol.dispose]: () => database.close(),
  };
}

const COLUMNS = ["id", ...PLANT_FIELDS] as const;

/** Prepares the statements for plants. */
export function nodeRows(connection: NodeConnection): PlantRows {
  const placeholders = COLUMNS.map(() => "?");
  const insert = connection.prepare(
    `INSERT INTO plants (${COLUMNS}) VALUES (${placeholders}) ON CONFLICT (id) DO NOTHING`,
  );
  const select = connection.prepare("SELECT * FROM plants WHERE id = ?");

  return {
    insert: (plant) =>
      Number(insert.run(...COLUMNS.map((column) => columnValue(plant, column))).changes) === 1,
    find(id) {
      const row = select.get(id) as Record<keyof Plant, ColumnValue> | undefined;
      return row && plantOfRow(id, row);
    },
  };
}
