import { PlantStoreError } from "../../errors.ts";
import { certificateFailure } from "../../tls_failures.ts";
import { DatabaseError, DatabaseFailure } from "../database.ts";
import { howToRun } from "./url.ts";

/**
 * A failure of PostgreSQL or of the connection to it. It quotes PostgreSQL's message only if that cannot
 * contain values of a plant: a rejected user, an exceeded limit, or an error of an operator's trigger.
 *
 * `code` is a SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html), one of
 * Bun's `ERR_POSTGRES_…`, a code of the TLS library, or one of this program's own.
 */
export class PostgresFailure extends DatabaseFailure {
  override readonly name = "PostgresFailure";
  readonly code: string;

  constructor(code: string, message = `${wordsFor(code)} (${code})`) {
    super(message);
    this.code = code;
  }
}

/** Translates an error of Bun's client by its code. */
export function toFailure(error: unknown): unknown {
  if (error instanceof PostgresFailure) return error;
  if (error instanceof Bun.SQL.PostgresError) {
    // Other functions of the server raise 54000 for a row that is too large.
    const givesOutIds = /^GetNew(?:TransactionId|MultiXactId)$/.test(error.routine ?? "");
    if (error.errno === "54000" && givesOutIds) return new PostgresFailure("WRAPAROUND");

    const code = error.errno ?? error.code;
    // Only the message tells whether the reason is the role, a certificate or pg_hba.conf.
    if (code === "28000" && error.severity === "FATAL")
      return new PostgresFailure(code, `it refuses the user: ${error.message} (${code})`);

    // During REINDEX CONCURRENTLY (`…_ccnew`) of the primary key, or of a partition's, ON CONFLICT can miss
    // a row that another transaction has inserted.
    if (code === "23505" && /^plants_pkey(?:_|$)|_pkey_cc/.test(error.constraint ?? ""))
      return new PostgresFailure("REINDEX");

    if (error.routine === "exec_stmt_raise") {
      // A trigger chooses its own code. Treat an unknown code like RAISE without a code.
      const isKnown = CONSEQUENCES.some(([codes]) => codes.test(code));
      return new PostgresFailure(
        isKnown ? code : "P0001",
        `a trigger says: ${error.message} (${code})`,
      );
    }
    return new PostgresFailure(code, DATA.test(code) ? refusalIn(error, code) : undefined);
  }

  // For example a rejected certificate, with a code of the TLS library.
  if (error instanceof Error && "code" in error && typeof error.code === "string")
    return new PostgresFailure(error.code);
  return error;
}

/** Names the constraint, column or table that refuses a plant; `undefined` if PostgreSQL does not. */
function refusalIn(
  { message, constraint, column, table }: Bun.SQL.PostgresError,
  code: string,
): string | undefined {
  if (code.startsWith("54")) return `${message} (${code})`;

  const refusers = Object.entries({ constraint, column, table })
    .filter(([, name]) => name !== undefined)
    .map(([what, name]) => `${what} "${name}"`);
  return refusers.length === 0 ? undefined : `refused by ${refusers.join(" of ")} (${code})`;
}

/** Returns the code of a failure, or an empty string for any other error. */
export function codeOf(error: unknown): string {
  return error instanceof PostgresFailure ? error.code : "";
}

/** The consequences of an error. */
interface Consequences {
  /** `keep` the connection, `close` it, or `close all` of the pool: they lead to the same server. */
  readonly connection: "keep" | "close" | "close all";
  /**
   * `repeat` the work while there is time, on another connection if its own is closed; `refuse` it,
   * because storage is unavailable; `refuse data` of one plant; or report a `bug`.
   */
  readonly work: "repeat" | "refuse" | "refuse data" | "bug";
  /** Whether connecting will fail until somebody acts. If so, work does not wait for a connection. */
  readonly isLasting: boolean;
}

/** Codes of data errors: an operator's constraint, column type, index or trigger refuses the plant. */
const DATA = /^(?:22|23|54|P0)/;

/** The first entry whose pattern matches the code applies. */
const CONSEQUENCES: readonly (readonly [codes: RegExp, Consequences])[] = [
  [/^(?:40|55P03|57014|REINDEX)/, { connection: "keep", work: "repeat", isLasting: false }],
  [
    // 26000: the prepared statement is missing, because a pooler switched to another server process.
    // An invalid reply was corrupted on the network, with or without TLS. Its outcome is unknown.
    /^(?:08|25006|25P04|26000|53300|57|NO_SERVER|ERR_POSTGRES_(?:CONNECTION_|INVALID_MESSAGE|UNEXPECTED_MESSAGE)|EPROTO)/,
    { connection: "close", work: "repeat", isLasting: false },
  ],
  [
    /^(?:53|58|DEADLINE|DISPOSED|NO_STANDBY|WRAPAROUND|XX)/,
    { connection: "close", work: "refuse", isLasting: false },
  ],
  [DATA, { connection: "keep", work: "refuse data", isLasting: true }],
  // The server's settings are wrong.
  [/^(?:UNSAFE|0A000)/, { connection: "close all", work: "refuse", isLasting: true }],
];

const BUG: Consequences = { connection: "close", work: "bug", isLasting: true };

/** Returns the consequences of an error for the connection, for its work, and for connecting. */
export function consequencesOf(error: unknown): Consequences {
  return CONSEQUENCES.find(([codes]) => codes.test(codeOf(error)))?.[1] ?? BUG;
}

/**
 * Translates a failure into the error that a `PlantStore` promises, with the failure as its `cause` for
 * the log. Returns a bug unchanged.
 */
export function rejectionOf(error: unknown): unknown {
  const { work } = consequencesOf(error);
  if (work === "refuse data") return new PlantStoreError("internal", undefined, { cause: error });
  if (work === "bug") return error;

  const reason = forCode(REASONS, codeOf(error)) ?? "storage is unavailable";
  const message = `${reason}; the plant may or may not be stored, send it again later`;
  return new PlantStoreError("storage_unavailable", message, { cause: error });
}

const NOT_IN_TIME = "storage did not finish in time";

/** The messages for clients, by the code or its prefix. */
const REASONS: Readonly<Record<string, string>> = {
  "25006": "storage is read-only",
  "25P04": NOT_IN_TIME,
  "53100": "storage is full",
  "55P03": NOT_IN_TIME,
  "58": "storage has failed to read or write",
  DEADLINE: NOT_IN_TIME,
  NO_STANDBY: NOT_IN_TIME,
  REINDEX: NOT_IN_TIME,
  WRAPAROUND: "storage needs maintenance",
  XX: "storage has failed",
};

const NAME_TAKEN =
  "another application's view, type or table has the name of a plant-store table: create a schema for plant-store";

/**
 * The messages for operators, by the code or its prefix. `UNSAFE` and `NO_STANDBY` get their message
 * where they are thrown.
 */
const WORDS: Readonly<Record<string, string>> = {
  // SQLSTATE (PostgreSQL's documentation, appendix A)
  "22": "a column's type, or a function, refuses a value: PostgreSQL's log says which",
  "08P01": "it rejects session settings, as poolers do: connect to PostgreSQL directly",
  "0A000":
    "it cannot store plants in these tables: drop the rules on them; if Citus has distributed them, use the URL with the scheme citus",
  "25006": "it is read-only: a standby, or default_transaction_read_only is on",
  "25P04": "transaction_timeout ended the session: raise it for the role or the database",
  "28": "it rejects this user or password",
  "3D000": "it has no such database",
  "40001":
    "another transaction conflicts with it; a standby that is only read needs hot_standby_feedback = on",
  "42501": "the user lacks a privilege, or row level security applies to it",
  "42703": `a plant-store table lacks a column: ${howToRun("migrate")}, or restore it`,
  "42710": NAME_TAKEN,
  "42P01": "a plant-store table is missing: restore the backup",
  "42P07": NAME_TAKEN,
  "53100": "its disk is full",
  "53300": "it accepts no more connections",
  "55P03": "another transaction held a lock for too long",
  "57014": "the statement was cancelled, or took longer than its statement_timeout",
  "57P01": "a shutdown or pg_terminate_backend() ended the connection",
  "57P03": "it is starting or stopping",

  // Ours
  DEADLINE: "it did not respond in time",
  DISPOSED: "it was closed",
  REINDEX: "the primary key is being rebuilt",
  WRAPAROUND:
    "it has no transaction ids left: end old transactions, then VACUUM the oldest database",

  // Bun's client
  ERR_POSTGRES_CONNECTION_CLOSED: "the connection was closed",
  ERR_POSTGRES_CONNECTION_REFUSED: "connection refused, or unknown host name",
  ERR_POSTGRES_CONNECTION_TIMEOUT: "it did not respond in time",
  ERR_POSTGRES_TLS_NOT_AVAILABLE: "it does not accept TLS: set ssl = on in postgresql.conf",

  // Files and settings of TLS
  ERR_INVALID_ARG_TYPE: "sslrootcert, sslcert or sslkey names an empty file",
  ERR_INVALID_ARG_VALUE: "PGSSLMODE in the environment is invalid: remove it",
  ERR_BORINGSSL:
    "sslrootcert, sslcert or sslkey cannot be used: each must be PEM, and sslkey unencrypted and the key of sslcert",
  EACCES: "sslrootcert, sslcert or sslkey names a file that this user may not read",
  EISDIR: "sslrootcert, sslcert or sslkey names a directory",
  ENOENT: "sslrootcert, sslcert or sslkey names a missing file",
  ENOTDIR: "sslrootcert, sslcert or sslkey names a missing file",

  // The handshake of TLS
  EPROTO: "the TLS handshake failed: the server may not trust sslcert",
};

function wordsFor(code: string): string {
  const certificate = certificateFailure(code, "set sslrootcert to the CA's PEM file");
  return certificate ?? forCode(WORDS, code) ?? "unexpected error";
}

function forCode(words: Readonly<Record<string, string>>, code: string): string | undefined {
  return Object.entries(words).find(([prefix]) => code.startsWith(prefix))?.[1];
}

/**
 * Runs a function, and turns its database failures into one line for the operator that names the
 * database. Any other error is a bug, and is rethrown unchanged.
 *
 * @param action The action that the message names, such as `open`.
 * @throws {DatabaseError} If the database fails.
 */
export async function withDatabaseError<Result>(
  action: string,
  database: string,
  run: () => Promise<Result>,
): Promise<Result> {
  try {
    return await run();
  } catch (thrown) {
    const error = thrown instanceof PlantStoreError ? thrown.cause : thrown;
    if (!(error instanceof DatabaseError || error instanceof PostgresFailure)) throw error;
    throw new DatabaseError(`Cannot ${action} database "${database}": ${error.message}`, {
      cause: error,
    });
  }
}
