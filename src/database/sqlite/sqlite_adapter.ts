import { statSync } from "node:fs";
import { resolve } from "node:path";

import type { PlantStore } from "../../group_commit/plant_store.ts";
import {
  type BackupFormat,
  type DatabaseAdapter,
  type DatabaseKind,
  type DatabaseMetric,
  type ServingDatabase,
  type ServingOptions,
} from "../adapter.ts";
import { type Database, DatabaseError } from "../database.ts";
import { howToRunOn } from "./advice.ts";
import { placeFault, requireWritableFiles } from "./files.ts";
import type { Migration } from "./migrations.ts";
import type { ConnectOptions } from "./opening.ts";
import { becomeOwner } from "./owner.ts";
import { databaseFile, makeDirectory, sqlitePath } from "./path.ts";
import { allTokens } from "./token_pages.ts";
import { deserializeError, encodeBatch, startWorker } from "./worker_calls.ts";
import type { WorkerApi, WriterEvent } from "./writer_worker.ts";

/** SQLite. */
export const SQLITE: DatabaseKind = {
  name: "SQLite",
  urls: "file:PATH",
  schemes: ["file:"],
  adapterOf(url) {
    const path = sqlitePath(url);
    return path === undefined ? undefined : sqliteAdapter(path);
  },
};

/** The format of backups: a SQLite file, whatever the database. */
export const SQLITE_BACKUPS: BackupFormat = {
  write: async (...args) => (await import("./backup.ts")).writeBackup(...args),
  open: async (...args) => (await import("./restore.ts")).openBackup(...args),
};

/** Returns the adapter of a SQLite database. Loads modules that a server does not need only when used. */
export function sqliteAdapter(path: string): DatabaseAdapter {
  return {
    name: path,
    describe: () => ({ adapter: "sqlite", path }),
    howToRun: (command) => howToRunOn(command, resolve(path)),

    placeFault: () => placeFault(path),
    openForServing: (options) => {
      const owner = becomeOwner(path);
      if (owner !== undefined) options.onInfo?.(`Runs as ${owner}, who owns the database`, {});
      return openSqliteWorker(path, options);
    },
    openForWriting: async ({ create = false, onCreate, onWarning } = {}) =>
      await openHere(path, {
        access: create ? "create" : "write",
        onWarning,
        onMigrated: (_, isNew) => isNew && onCreate?.(resolve(path)),
      }),

    openPlants: async (options) => {
      becomeOwner(path);
      return (await import("./pages.ts")).openPlants(path, options);
    },
    // Opened for writing, because a database of an older version has to be migrated first.
    openForListing: () => openHere(path, { access: "write" }),

    check: async (options) => {
      becomeOwner(path);
      return (await import("./check.ts")).checkSqlite(path, options);
    },
    backup: async (target, options) => {
      const owner = becomeOwner(path);
      const { backupSqlite } = await import("./backup.ts");
      return await backupSqlite(path, target, options).catch((cause: NodeJS.ErrnoException) => {
        if (owner === undefined || cause.code !== "EACCES") throw cause;
        const reason = `${owner}, who owns the database, may not write there`;
        throw new DatabaseError(`Cannot back up to "${target}": ${reason}`, { cause });
      });
    },
    restore: async (source, options) =>
      (await import("./restore.ts")).restoreSqlite(path, source, options),
    migrate: (options) => migrateSqlite(path, options),
    requireMigratable: async () => {
      becomeOwner(path);
      const { withFileError } = await import("./errors.ts");
      withFileError("open", path, () => requireWritableFiles(databaseFile(path)));
    },
  };
}

/**
 * Opens a SQLite database in a Worker. bun:sqlite is synchronous, and a hanging disk must not block the
 * server's thread.
 *
 * @throws {DatabaseError} If the file cannot be used.
 */
export async function openSqliteWorker(
  path: string,
  {
    makeQueue,
    create = false,
    onCreate = () => {},
    onWarning = () => {},
    onInfo = () => {},
  }: ServingOptions,
): Promise<ServingDatabase> {
  const walBytes = new Float64Array(new SharedArrayBuffer(Float64Array.BYTES_PER_ELEMENT));
  let checkpointFailures = 0;
  let checkedAt = 0;

  function onEvent(event: WriterEvent): void {
    if (event.type === "info") return onInfo(event.message, event.properties);
    if (event.type === "warning") return onWarning(event.message, { reason: event.reason });
    if (event.type === "created") return onCreate(resolve(path));
    if (event.type === "checked") return void (checkedAt = Date.now() / 1_000);
    checkpointFailures++;
    onWarning("Checkpoint failed", { cause: deserializeError(event.error) });
  }

  const worker = startWorker<WorkerApi>("writer", { decode: JSON.parse, onEvent });
  const { call, send } = worker;

  await call("open", path, create ? "create" : "write", walBytes.buffer).catch((error) => {
    worker.terminate();
    throw error;
  });

  const store: PlantStore = {
    add: (plants, { timeoutMs }) =>
      send(encodeBatch(plants, timeoutMs)) as ReturnType<PlantStore["add"]>,
    probe: () => call("probe"),
  };

  return {
    plants: makeQueue(store, 1),
    ready: store.probe,

    tokens: {
      list: () => allTokens((row) => call("page", row)),
      revision: () => call("revision"),
      add: (token) => call("add", token),
      recordUses: (uses) => call("recordUses", uses),
    },

    metrics: () => metricsOf({ walBytes: walBytes[0] ?? 0, checkpointFailures, checkedAt }),
    failed: worker.failed,

    async [Symbol.asyncDispose]() {
      // A Worker that has failed closed its connections itself, except one that hangs: do not wait for it.
      await Promise.race([worker.failed, call("close")]).finally(worker.terminate);
    },
  };
}

interface Facts {
  readonly walBytes: number;
  readonly checkpointFailures: number;
  readonly checkedAt: number;
}

function metricsOf({ walBytes, checkpointFailures, checkedAt }: Facts): readonly DatabaseMetric[] {
  return [
    {
      name: "plant_store_wal_bytes",
      help: "What SQLite's write-ahead log holds, in bytes; its file may be larger",
      type: "gauge",
      value: walBytes,
    },
    {
      name: "plant_store_checkpoint_failures_total",
      help: "Checkpoints that failed: the WAL grows until one succeeds",
      type: "counter",
      value: checkpointFailures,
    },
    {
      name: "plant_store_integrity_check_passed_timestamp_seconds",
      help: "When the integrity check of this start passed, since 1970 UTC; 0 until then",
      type: "gauge",
      value: checkedAt,
    },
  ];
}

/** Opens a database on this thread, for a command. */
async function openHere(path: string, options: ConnectOptions): Promise<Database> {
  becomeOwner(path);
  if (options.access === "create") makeDirectory(path);
  const { connect } = await import("./bun_driver.ts");
  const { sqliteDatabase } = await import("./sqlite_database.ts");
  const { toFileError } = await import("./errors.ts");
  const database = sqliteDatabase(connect(path, options));

  return {
    ...database,
    async [Symbol.asyncDispose]() {
      try {
        await database[Symbol.asyncDispose]();
      } catch (error) {
        // The command's work is done. Only moving the WAL failed, for example on a full disk.
        const failure = toFileError("move the WAL into", path, (error as Error).cause);
        if (!(failure instanceof DatabaseError)) throw error;
        throw new DatabaseError(`${failure.message}; nothing is lost: the WAL stays beside it`, {
          cause: error,
        });
      }
    },
  };
}

async function migrateSqlite(
  path: string,
  { dryRun, onCreate }: Parameters<DatabaseAdapter["migrate"]>[0],
) {
  const { MIGRATIONS, migrationScript, readLedger } = await import("./migrations.ts");
  const { withFileError } = await import("./errors.ts");
  // A missing or empty file needs all of them.
  let migrations: readonly Migration[] = MIGRATIONS;
  becomeOwner(path);

  if (!dryRun) {
    migrations = [];
    const onMigrated: ConnectOptions["onMigrated"] = (applied, isNew) => {
      migrations = applied;
      if (isNew) onCreate?.(resolve(path));
    };
    await using _ = await openHere(path, { access: "create", onMigrated });
  } else if (withFileError("open", path, () => statSync(path, { throwIfNoEntry: false })?.size)) {
    const { connect } = await import("./bun_driver.ts");
    using client = connect(path, { access: "read" });
    migrations = readLedger(client).missing;
  }

  return migrations.map((migration) => ({
    tag: migration.tag,
    script: migrationScript(migration),
  }));
}
