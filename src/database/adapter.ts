import type { ServerTokens, TokenRecord } from "../auth/token_store.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import type { PlantStore } from "../group_commit/plant_store.ts";
import type { Database } from "./database.ts";

/** A kind of database: which URLs are its own. */
export interface DatabaseKind {
  /** As people know it. */
  readonly name: string;

  /** What a URL of it looks like, for messages: `file:PATH`. */
  readonly urls: string;

  /** The schemes of these URLs, such as `file:`. */
  readonly schemes: readonly string[];

  /**
   * The adapter of the database with this URL. Opens nothing.
   *
   * @returns `undefined` if it is not a URL of this kind.
   * @throws {RangeError} If it is one, but cannot be used. The message quotes nothing secret of it.
   */
  adapterOf(url: string): DatabaseAdapter | undefined;
}

/**
 * All that the program does with the database of one URL. What differs between databases is here,
 * and nowhere outside. An adapter keeps nothing open; each call rejects with a `DatabaseError` if
 * the database cannot be used.
 */
export interface DatabaseAdapter {
  /** The name of the database in messages: its path, or its name on a server. */
  readonly name: string;

  /** What the log of a start has of it: no secret. */
  readonly describe: () => Record<string, unknown>;

  /**
   * How to run a command on this database, without a secret: `run as garden: plant-store token list
   * --database /var/lib/plants.db`.
   */
  readonly howToRun: (command: string) => string;

  /**
   * Finds out why the place of the database could lose it, although it can be opened there: a network
   * file system, say.
   *
   * @returns The reason, and what to do; `undefined` if the place is safe.
   */
  placeFault(): Promise<string | undefined>;

  /** Opens the database for a server. None of its calls blocks the thread. */
  openForServing(options: ServingOptions): Promise<ServingDatabase>;

  /**
   * Opens the database for a command that writes, even while a server runs.
   *
   * @param options `onWarning` is called with what the operator should know of, as at a start.
   */
  openForWriting(
    options?: CreationOptions & Pick<ReadOptions, "onWarning">,
  ): Promise<WritingDatabase>;

  /**
   * Opens the plants for a command that only reads: creates no database, and changes none.
   *
   * @param options `onWarning` is called with what a newer version has added, which is left out.
   */
  openPlants(options?: Pick<ReadOptions, "onWarning">): Promise<OpenPlants>;

  /**
   * Opens the tokens for a command that lists them. Creates no database, and may bring the schema of
   * an older one up to date.
   */
  openForListing(): Promise<OpenTokens>;

  /**
   * Reads the whole database for corruption, even while a server writes to it.
   *
   * @returns How much was read, all of it sound; `undefined` if it was stopped.
   * @throws {DatabaseError} If the database is corrupt, or the check itself failed: then it may be
   *   sound or corrupt.
   * @throws {ConfigError} If another program must be used for this database: the message names it.
   *   This applies to the calls below as well.
   */
  check(options: Pick<ReadOptions, "stop">): Promise<CheckResult | undefined>;

  /**
   * Copies the database into a new file.
   *
   * @param target The file, as an absolute path.
   * @returns How many plants the copy has; `undefined` if it was stopped.
   */
  backup(target: string, options: ReadOptions): Promise<number | undefined>;

  /**
   * Replaces the database by a copy of a backup, and moves the old files aside; on a server, fills a
   * database without plants and tokens. Changes nothing unless the whole backup is sound.
   *
   * @param source The path of the backup, as messages have it.
   * @returns `undefined` if it was stopped.
   * @throws {DatabaseError} If the backup is not sound.
   */
  restore(source: string, options: ReadOptions): Promise<RestoreResult | undefined>;

  /**
   * Brings the schema up to date, and creates the database if there is none. A dry run changes
   * nothing.
   *
   * @returns The name and the SQL of each pending migration.
   */
  migrate(options: {
    readonly dryRun: boolean;
    readonly onCreate?: CreationOptions["onCreate"];
  }): Promise<readonly { readonly tag: string; readonly script: string }[]>;

  /**
   * Requires what `migrate` needs to create the database or to change its schema, as far as that can be
   * known without changing anything.
   */
  requireMigratable(): Promise<void>;
}

/**
 * How to open a database: `create` creates it if there is none, or has no tables; `write` and `read`
 * need one.
 */
export type DatabaseAccess = "create" | "write" | "read";

/**
 * Takes a line for the user or the log about a problem that loses no data: `reason` says why in
 * words, `cause` is the error.
 */
export type OnWarning = (
  message: string,
  why?: { readonly reason?: string; readonly cause?: unknown },
) => void;

/**
 * Whether to create a database. A first start and a disk that is not mounted look alike: what was
 * stored under the mount point is hidden when the disk comes.
 */
export interface CreationOptions {
  /** Whether to create the database if there is none. @default {false} */
  readonly create?: boolean;
  /** Called with its name or its path after the database was created. @default does nothing */
  readonly onCreate?: ((created: string) => void) | undefined;
}

/** How a server opens its database. */
export interface ServingOptions extends CreationOptions {
  /** Makes the queue over a store of the database. */
  readonly makeQueue: MakeQueue;
  /**
   * Reads the URL again: the password in it may have been rotated.
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
 * Makes a queue of plants over a store. Its limits, metrics and traces are the service's.
 *
 * @param maxInFlight How many batches the store commits at once.
 */
export type MakeQueue = (store: PlantStore, maxInFlight: number) => GroupCommit;

/** The database of a server. No server reads plants. */
export interface ServingDatabase extends AsyncDisposable {
  /** Takes one plant at a time. What it does not store holds up no other part of the database. */
  readonly plants: GroupCommit;

  /**
   * Resolves if a plant could be stored now: it commits to the database, but changes no plant.
   *
   * @returns The names of the parts of the database that cannot store their plants, while others
   *   can. Often there is one part, and nothing to name.
   * @throws {PlantStoreError} `storage_unavailable` if none can.
   */
  ready(): Promise<readonly string[]>;

  readonly tokens: ServerTokens;

  /** The current metrics of the database. Takes microseconds, and waits for nothing. */
  metrics(): readonly DatabaseMetric[];

  /**
   * Resolves with the cause once the database may acknowledge nothing (fail-stop). From then on
   * every call rejects, and only a new process can find out what is stored. Pending while the
   * database works; never rejects.
   */
  readonly failed: Promise<Error>;
}

/** One metric of a database, as Prometheus defines it. */
export interface DatabaseMetric {
  /** With its unit, and `_total` if it is a counter. */
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  /** Distinguish metrics of one name. @default none */
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The database of a command that writes. */
type WritingDatabase = Pick<Database, "plants" | "tokens" | "find" | "delete"> & AsyncDisposable;

/**
 * The plants of a database, for reading only, until they are disposed of. Each also throws if
 * plants may be missing from a corrupt database: `pages` at the end.
 */
export interface OpenPlants extends Pick<Database, "pages" | "find" | "count">, AsyncDisposable {
  /**
   * Every token, for a command that adds them to another database. Also throws if tokens are
   * missing from a corrupt database, at the end, or if another user can replace the database.
   */
  tokenPages(): AsyncIterable<readonly TokenRecord[]>;
}

/** The tokens of a database, until they are disposed of. */
export type OpenTokens = Pick<Database, "tokens"> & AsyncDisposable;

/** All plants and tokens of a database at one moment. Disposing of it closes the database. */
export interface Snapshot extends Pick<Database, "pages">, AsyncDisposable {
  /** Every token, even those that were revoked or have expired. */
  readonly tokens: readonly TokenRecord[];
}

/** The format of backups: one file, whatever database it was made of. */
export interface BackupFormat {
  /**
   * Writes a snapshot into a new file, as {@linkcode DatabaseAdapter.backup} does.
   *
   * @param openSnapshot Called once the target is known to be good.
   */
  write(
    target: string,
    openSnapshot: () => Promise<Snapshot>,
    options: ReadOptions,
  ): Promise<number | undefined>;

  /**
   * Opens a backup, once the whole file is known to be sound.
   *
   * @returns `undefined` if it was stopped.
   * @throws {DatabaseError} If the backup is not sound.
   * @throws {Error} The system's, if it cannot be read.
   */
  open(source: string, options: ReadOptions): Promise<Snapshot | undefined>;
}

/** How to read a whole database. */
export interface ReadOptions {
  readonly stop: AbortSignal;
  /** Called with what a newer version has added, and is not read. @default does nothing */
  readonly onWarning?: OnWarning | undefined;
}

/** How many plants and pages a check read in a sound database. */
export interface CheckResult {
  readonly plants: number;
  readonly pages: number;
}

/** The result of a restore. */
interface RestoreResult {
  readonly plants: number;
  /** The size of the file. */
  readonly bytes: number;
  /** The directory with the old files; `undefined` if there were none. */
  readonly replaced: string | undefined;
  /**
   * How to add what only the old files have: `run as garden: plant-store import … --tokens`.
   * `undefined` if no database was replaced.
   */
  readonly howToAddOthers: string | undefined;
  readonly tokens: RestoredTokens;
}

/** The tokens of a restored backup. */
export interface RestoredTokens {
  /** How many stay revoked, as in the replaced database. */
  readonly ended: number;
  /**
   * The names of those that are accepted as in the backup, although nothing says whether they were
   * ended since.
   */
  readonly unconfirmed: readonly string[];
}
