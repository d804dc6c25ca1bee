import type { NewPlant } from "../plant/plant.ts";
import type { TokenStore } from "../auth/token_store.ts";
import type { Database } from "./database.ts";

/**
 * What the program does with the database of one URL, and how databases differ in it. An adapter holds nothing open by
 * itself; each call rejects with a `DatabaseError` if the database cannot be used.
 */
export interface DatabaseAdapter {
  /** What messages call the database: its path, or its name on a server. */
  readonly name: string;

  /** How a command line names the database, without a secret: `--database /var/lib/plants.db`. */
  readonly flag: string;

  /** How many batches the database commits at once. */
  readonly maxInFlight: number;

  /** Opens the database for a server, and creates it if there is none. No call of it blocks the thread. */
  openForServing(options: ServingOptions): Promise<Database>;

  /** Opens the database for a command that writes to it, perhaps beside a server. */
  openForWriting(options?: WritingOptions): Promise<Database>;

  /**
   * Opens the plants for a command that only reads them: creates no database, and changes none.
   *
   * @param onWarning Takes a line for the user: what is read may not be all that there is.
   */
  openPlants(onWarning: OnWarning): Promise<PlantReader>;

  /** Opens the tokens for a command that only reads them: creates no database. */
  openTokens(onWarning: OnWarning): Promise<TokenReader>;

  /**
   * Reads the whole database for corruption, even while a server writes to it.
   *
   * @throws {ConfigError} If another program does that; the message names it. The same holds for the calls below.
   */
  check(options: CheckOptions): Promise<CheckResult>;

  /**
   * Copies the database into a new file.
   *
   * @param target The file, as an absolute path.
   * @returns How many plants the copy has; nothing if it was stopped.
   */
  backup(target: string, options: BackupOptions): Promise<number | undefined>;

  /**
   * Puts a copy of a backup in the place of the database, and moves the old files aside. Changes nothing unless the whole
   * backup is sound.
   *
   * @param source The backup, as an absolute path.
   */
  restore(source: string, options: CheckOptions): Promise<RestoreResult>;

  /**
   * Brings the schema up to date.
   *
   * @returns The steps that were necessary.
   */
  migrate(options: MigrateOptions): Promise<readonly MigrationStep[]>;
}

/** What opens a database: `create` creates it if there is none, `write` and `read` need one. */
export type Access = "create" | "write" | "read";

/** Of the time that `add` has, what the database may take: the rest is for telling its caller why it failed. */
export const ADD_SHARE = 0.9;

/** Takes a line for the user or the log. No data is lost by what it says. */
export type OnWarning = (message: string, cause?: unknown) => void;

/** How a server opens its database. */
export interface ServingOptions {
  /** How long closing may take before it is given up, in milliseconds. @default {2_000} */
  readonly closeTimeoutMs?: number;
  /** Called with a problem that an operator should know of. @default does nothing */
  readonly onWarning?: OnWarning;
  /** Called with what an operator may want to know. @default does nothing */
  readonly onInfo?: (message: string, properties: Record<string, unknown>) => void;
}

/** How a command writes. */
export interface WritingOptions {
  /** Whether to create the database if there is none. @default {false} */
  readonly create?: boolean;
  /** Called before the database is created. @default does nothing */
  readonly onCreate?: () => void;
  /** For a command that adds many plants: how it waits while a server has the database's only lock. @default it does not */
  readonly bulk?: LockWait;
}

/** How to wait for a lock, as long as it takes. */
export interface LockWait {
  /** Called once, when the first wait begins. */
  readonly onWait: () => void;
  /** Ends the wait. */
  readonly stop: AbortSignal;
}

/** The plants of a database, for reading only. */
export interface PlantReader extends AsyncDisposable {
  /**
   * As `pages` of `Database`.
   *
   * @throws {DatabaseError} Even after the last page, if plants may be missing because the database is known to be corrupt.
   */
  pages(): AsyncIterable<readonly NewPlant[]>;
}

/** The tokens of a database. */
export interface TokenReader extends AsyncDisposable {
  readonly tokens: TokenStore;
}

/** How a database is copied. */
export interface BackupOptions {
  /** Cancels the copy. */
  readonly stop: AbortSignal;
  /** Called several times a second with how many bytes of how many are copied, about. */
  readonly onProgress: (copied: number, total: number) => void;
}

/** How to check. */
export interface CheckOptions {
  /** Ends the check. */
  readonly stop: AbortSignal;
  readonly onProgress: (progress: CheckProgress) => void;
}

/** How far a check is. */
export interface CheckProgress {
  /** How many plants are checked. */
  readonly plants: number;
  /** Of how many. */
  readonly total: number;
}

/** How a check ended. */
export type CheckResult =
  | { readonly type: "sound"; readonly plants: number; readonly pages: number }
  | { readonly type: "corrupt"; readonly finding: string }
  /** The check itself failed, and nothing is known. */
  | { readonly type: "failed"; readonly reason: string }
  | { readonly type: "stopped" };

/** How a restore ended: as the check of the backup, unless that is sound. */
export type RestoreResult =
  | {
      readonly type: "restored";
      readonly plants: number;
      /** The size of the file. */
      readonly bytes: number;
      /** The directory that the old files are in; nothing if there were none. */
      readonly replaced?: string | undefined;
    }
  | Exclude<CheckResult, { readonly type: "sound" }>;

/** How to migrate. */
export interface MigrateOptions {
  /** Whether to change nothing. */
  readonly dryRun: boolean;
  readonly onWarning: OnWarning;
}

/** One step of a schema: its name, and its SQL as it runs. */
export interface MigrationStep {
  readonly tag: string;
  readonly script: string;
}
