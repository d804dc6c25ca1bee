import type { ServerTokens, TokenRecord } from "../auth/token_store.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import type { PlantStore } from "../group_commit/plant_store.ts";
import type { Database } from "./database.ts";

/** A kind of database, with the URLs that it handles. */
export interface DatabaseKind {
  /** Its common name: `PostgreSQL`. */
  readonly name: string;

  /** The form of its URLs, for messages: `file:PATH`. */
  readonly urls: string;

  /** The schemes of these URLs, such as `file:`. */
  readonly schemes: readonly string[];

  /**
   * Returns the adapter for a URL. Opens nothing.
   *
   * @returns `undefined` if the URL belongs to another kind of database.
   * @throws {RangeError} If the URL is invalid. The message quotes no secret from it.
   */
  adapterOf(url: string): DatabaseAdapter | undefined;
}

/**
 * Everything that the program does with the database of one URL. Every difference between the kinds of
 * databases is behind this interface. An adapter keeps nothing open. Each call rejects with a
 * `DatabaseError` if the database cannot be used.
 */
export interface DatabaseAdapter {
  /** The name of the database in messages: its path, or its name on a server. */
  readonly name: string;

  /** Describes the database in the log of a start, without secrets. */
  readonly describe: () => Record<string, unknown>;

  /**
   * Says how to run a command on this database, without secrets: `run as garden: plant-store token list
   * --database /var/lib/plants.db`.
   */
  readonly howToRun: (command: string) => string;

  /**
   * Checks whether the database is in a place that could lose data, such as a network file system.
   *
   * @returns The reason, and what to do; `undefined` if the place is safe.
   */
  placeFault(): Promise<string | undefined>;

  /** Opens the database for a server. None of its calls blocks the thread. */
  openForServing(options: ServingOptions): Promise<ServingDatabase>;

  /**
   * Opens the database for a command that writes, even while a server runs.
   *
   * @param options `onWarning` is called with problems that the operator should know of.
   */
  openForWriting(
    options?: CreationOptions & Pick<ReadOptions, "onWarning">,
  ): Promise<WritingDatabase>;

  /**
   * Opens the plants for a command that only reads. Neither creates nor changes a database.
   *
   * @param options `onWarning` is called if a newer version has added columns, which are not read.
   */
  openPlants(options?: Pick<ReadOptions, "onWarning">): Promise<OpenPlants>;

  /**
   * Opens the tokens for a command that lists them. Does not create a database, but may migrate an older
   * one.
   */
  openForListing(): Promise<OpenTokens>;

  /**
   * Checks the whole database for corruption, even while a server writes to it.
   *
   * @returns How much was checked; `undefined` if stopped.
   * @throws {DatabaseError} If the database is corrupt, or if the check itself failed.
   * @throws {ConfigError} If another program does this for the database: the message names it. The
   *   methods below also throw this.
   */
  check(options: Pick<ReadOptions, "stop">): Promise<CheckResult | undefined>;

  /**
   * Copies the database into a new file.
   *
   * @param target The file, as an absolute path.
   * @returns The number of plants in the copy; `undefined` if stopped.
   */
  backup(target: string, options: ReadOptions): Promise<number | undefined>;

  /**
   * Restores a backup. On SQLite, replaces the database with a copy of the backup, and moves the old
   * files aside. On a server, fills a database that has no plants or tokens. Changes nothing if the
   * backup is corrupt.
   *
   * @param source The path of the backup, for messages too.
   * @returns `undefined` if stopped.
   * @throws {DatabaseError} If the backup is corrupt.
   */
  restore(source: string, options: ReadOptions): Promise<RestoreResult | undefined>;

  /**
   * Migrates the schema, and creates the database if it does not exist. A dry run changes nothing.
   *
   * @returns The name and the SQL of each pending migration.
   */
  migrate(options: {
    readonly dryRun: boolean;
    readonly onCreate?: CreationOptions["onCreate"];
  }): Promise<readonly { readonly tag: string; readonly script: string }[]>;

  /**
   * Requires that `migrate` could create the database or change its schema, as far as that can be checked
   * without a change.
   */
  requireMigratable(): Promise<void>;
}

/** How to open a database: `create` creates it or its tables if missing; `write` and `read` require them. */
export type DatabaseAccess = "create" | "write" | "read";

/**
 * Reports a problem that loses no data, in one line for the user or the log. `reason` is the cause in
 * words, `cause` the error.
 */
export type OnWarning = (
  message: string,
  why?: { readonly reason?: string; readonly cause?: unknown },
) => void;

/**
 * Whether to create a database. A first start and a missing mount look the same. A database that is
 * created below the mount point is hidden once the disk is mounted.
 */
export interface CreationOptions {
  /** Whether to create the database if it does not exist. @default {false} */
  readonly create?: boolean;
  /** Called with the name or path of the database after creating it. @default does nothing */
  readonly onCreate?: ((created: string) => void) | undefined;
}

/** How a server opens its database. */
export interface ServingOptions extends CreationOptions {
  /** Makes the queue for a store of the database. */
  readonly makeQueue: MakeQueue;
  /**
   * Reloads the URL, because its password may have been rotated.
   *
   * @default the URL stays the same
   */
  readonly readUrl?: (() => Promise<string>) | undefined;
  /** Called with problems that the operator should know of. @default does nothing */
  readonly onWarning?: OnWarning;
  /** Called with information for the operator. @default does nothing */
  readonly onInfo?: (message: string, properties: Record<string, unknown>) => void;
}

/**
 * Makes the queue of plants for a store, with the limits, metrics and traces of the service.
 *
 * @param maxInFlight How many batches the store commits at once.
 */
export type MakeQueue = (store: PlantStore, maxInFlight: number) => GroupCommit;

/** The database of a server. No server reads plants. */
export interface ServingDatabase extends AsyncDisposable {
  /** Takes one plant at a time. What it does not store holds up no other part of the database. */
  readonly plants: GroupCommit;

  /**
   * Resolves if a plant could be stored now, in one part of the database at least. It commits to the
   * database, but changes no plant.
   *
   * @throws {PlantStoreError} `storage_unavailable` if not.
   */
  ready(): Promise<void>;

  readonly tokens: ServerTokens;

  /** Returns the current metrics of the database. Takes microseconds, and never waits. */
  metrics(): readonly DatabaseMetric[];

  /**
   * Resolves with the cause once the database has failed for good (fail-stop). From then on every call
   * rejects, and only a new process can find out what is stored. Never rejects.
   */
  readonly failed: Promise<Error>;
}

/** A metric of a database, as in Prometheus. */
export interface DatabaseMetric {
  /** With its unit, and `_total` if it is a counter. */
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  /** Distinguish metrics with the same name. @default none */
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The database of a command that writes. */
type WritingDatabase = Pick<Database, "plants" | "tokens" | "find" | "delete"> & AsyncDisposable;

/**
 * The plants of a database, read-only. Its calls also throw if corruption may hide plants; `pages`
 * throws after the last page.
 */
export interface OpenPlants extends Pick<Database, "pages" | "find" | "count">, AsyncDisposable {
  /**
   * Reads every token, for a command that adds them to another database. Throws if another user can
   * replace the database, or if corruption hides a token.
   */
  tokens(): Promise<readonly TokenRecord[]>;
}

/** The tokens of an open database. */
export type OpenTokens = Pick<Database, "tokens"> & AsyncDisposable;

/** A snapshot of all plants and tokens of a database. Disposing of it closes the database. */
export interface Snapshot extends Pick<Database, "pages">, AsyncDisposable {
  /** Every token, even those that were revoked or have expired. */
  readonly tokens: readonly TokenRecord[];
}

/** The format of backups: one file, the same for every kind of database. */
export interface BackupFormat {
  /**
   * Writes a snapshot into a new file, as {@linkcode DatabaseAdapter.backup} does.
   *
   * @param openSnapshot Called after the target has been checked.
   */
  write(
    target: string,
    openSnapshot: () => Promise<Snapshot>,
    options: ReadOptions,
  ): Promise<number | undefined>;

  /**
   * Checks a whole backup for corruption, and opens it.
   *
   * @returns `undefined` if stopped.
   * @throws {DatabaseError} If the backup is corrupt or cannot be used.
   * @throws {Error} The system's error if it cannot be read.
   */
  open(source: string, options: ReadOptions): Promise<Snapshot | undefined>;
}

/** How to read a whole database. */
export interface ReadOptions {
  readonly stop: AbortSignal;
  /** Called if a newer version has added columns, which are not read. @default does nothing */
  readonly onWarning?: OnWarning | undefined;
}

/** How many plants and pages a check has read. */
export interface CheckResult {
  readonly plants: number;
  readonly pages: number;
}

/** The result of a restore. */
interface RestoreResult {
  readonly plants: number;
  /** The size of the file, in bytes. */
  readonly bytes: number;
  /** The directory with the old files; `undefined` if there were none. */
  readonly replaced: string | undefined;
  /**
   * How to import the plants and tokens that only the old files have: `run as garden: plant-store
   * import … --tokens`. `undefined` if no database was replaced.
   */
  readonly howToAddOthers: string | undefined;
  readonly tokens: RestoredTokens;
}

/** The tokens of a restored backup. */
export interface RestoredTokens {
  /** How many were revoked, because they were revoked in the replaced database. */
  readonly ended: number;
  /**
   * The names of the tokens that are accepted, although they may have been revoked or deleted after the
   * backup: no replaced database confirms them.
   */
  readonly unconfirmed: readonly string[];
}
