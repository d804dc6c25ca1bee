import { PlantStoreError } from "../../errors.ts";
import { DatabaseError } from "../database.ts";

/**
 * A failure of PostgreSQL or of the connection to it. It keeps the code only, because PostgreSQL's message may quote
 * plants. Codes are SQLSTATEs (https://www.postgresql.org/docs/current/errcodes-appendix.html), Bun's `ERR_POSTGRES_…`,
 * those of the TLS library, or this program's own.
 */
export class PostgresFailure extends Error {
  override readonly name = "PostgresFailure";
  readonly code: string;

  constructor(code: string, message: string = describeCode(code)) {
    super(message);
    this.code = code;
  }
}

/** The server's functions that fail with 54000 near a wraparound. From others, 54000 means that a row is too large. */
const GIVES_OUT_IDS = /^GetNew(?:TransactionId|MultiXactId)$/;

/** Translates an error of Bun's client by its code. */
export function toFailure(error: unknown): unknown {
  if (error instanceof PostgresFailure) return error;
  if (error instanceof Bun.SQL.PostgresError) {
    const isWraparound = error.errno === "54000" && GIVES_OUT_IDS.test(error.routine ?? "");
    return new PostgresFailure(isWraparound ? "WRAPAROUND" : (error.errno ?? error.code));
  }
  // A rejected certificate has a code of the TLS library.
  if (error instanceof Error && "code" in error && typeof error.code === "string")
    return new PostgresFailure(error.code);
  return error;
}

/** What to do after a failure: repeat, repeat on a new connection, answer that storage is unavailable, or report a bug. */
export type Remedy = "repeat" | "reconnect" | "refuse" | "fault";

/** What a code means: `remedy` for the program, `reason` for clients, and `words` for the operator. */
interface Meaning {
  readonly remedy?: Remedy;
  readonly reason?: string;
  readonly words?: string;
}

const NOT_IN_TIME = "storage did not finish in time";
const NAME_TAKEN =
  "another application's view, type or table has the name of a plant-store table: create a schema for plant-store";
const NOT_TRUSTED = "its certificate is not trusted: set sslrootcert to the CA's PEM file";

/** Codes by prefix. For each member, the first row that has it applies. */
const MEANINGS: readonly (readonly [code: string, meaning: Meaning])[] = [
  ["55P03", { remedy: "repeat", reason: NOT_IN_TIME, words: "another transaction held a lock for too long" }],
  ["57014", { remedy: "repeat", words: "the statement was cancelled, or took longer than its statement_timeout" }],
  ["40", { remedy: "repeat" }],
  ["08P01", { words: "it rejects session settings, as poolers do: connect to PostgreSQL itself" }],
  ["08", { remedy: "reconnect" }],
  ["25006", { remedy: "reconnect", reason: "storage is read-only", words: "it is read-only" }],
  [
    "25P04",
    {
      remedy: "reconnect",
      reason: NOT_IN_TIME,
      words: "transaction_timeout ended the session: raise it for the role or the database",
    },
  ],
  ["57P01", { words: "an operator or a shutdown ended the connection" }],
  ["57P03", { words: "it is starting or stopping" }],
  ["57", { remedy: "reconnect" }],
  // The prepared statement is missing: a pooler switched to another server process.
  ["26000", { remedy: "reconnect" }],
  ["53300", { remedy: "reconnect", words: "it accepts no more connections" }],
  ["NO_SERVER", { remedy: "reconnect" }],
  ["ERR_POSTGRES_CONNECTION_REFUSED", { words: "connection refused, or unknown host name" }],
  ["ERR_POSTGRES_CONNECTION_TIMEOUT", { words: "it did not respond in time" }],
  ["ERR_POSTGRES_CONNECTION_CLOSED", { words: "the connection was closed" }],
  ["ERR_POSTGRES_CONNECTION_", { remedy: "reconnect" }],
  // The reply was damaged on the network, so the outcome is unknown.
  ["ERR_POSTGRES_INVALID_MESSAGE", { remedy: "reconnect" }],
  ["ERR_POSTGRES_UNEXPECTED_MESSAGE", { remedy: "reconnect" }],
  // The same, with TLS.
  ["EPROTO", { remedy: "reconnect", words: "the TLS handshake failed: the server may not trust sslcert" }],
  // A statement or a connection took too long.
  ["DEADLINE", { remedy: "refuse", reason: NOT_IN_TIME, words: "it did not respond in time" }],
  ["DISPOSED", { remedy: "refuse", words: "it was closed" }],
  // The server's settings or tables would break what a 200 promises.
  ["UNSAFE", { remedy: "refuse" }],
  [
    "WRAPAROUND",
    {
      remedy: "refuse",
      reason: "storage needs maintenance",
      words: "it has no transaction ids left: end old transactions, then VACUUM the oldest database",
    },
  ],
  ["53100", { reason: "storage is full", words: "its disk is full" }],
  ["53", { remedy: "refuse" }],
  ["58", { remedy: "refuse", reason: "storage has failed to read or write" }],
  ["XX", { remedy: "refuse", reason: "storage has failed" }],
  ["28", { words: "it rejects this user or password" }],
  ["3D000", { words: "it has no such database" }],
  ["42501", { words: "the user lacks a privilege" }],
  ["42P01", { words: "a plant-store table is missing: restore the backup" }],
  ["42P07", { words: NAME_TAKEN }],
  ["42710", { words: NAME_TAKEN }],
  [
    "42703",
    { words: "a table has the name of a plant-store table, but other columns: create a schema for plant-store" },
  ],
  ["ERR_POSTGRES_TLS_NOT_AVAILABLE", { words: "it does not speak TLS" }],
  ["DEPTH_ZERO_", { words: NOT_TRUSTED }],
  ["SELF_SIGNED_", { words: NOT_TRUSTED }],
  ["UNABLE_TO_", { words: NOT_TRUSTED }],
  ["ERR_TLS_CERT_ALTNAME_INVALID", { words: "its certificate is for another host" }],
  ["CERT_HAS_EXPIRED", { words: "its certificate, or one above it, has expired: renew it" }],
  [
    "CERT_NOT_YET_VALID",
    { words: "its certificate, or one above it, is not valid yet: check the clocks of both machines" },
  ],
  ["ERR_INVALID_ARG_VALUE", { words: "PGSSLMODE in the environment is invalid: remove it" }],
  ["ERR_INVALID_ARG_TYPE", { words: "sslrootcert, sslcert or sslkey names an empty file" }],
  ["EISDIR", { words: "sslrootcert, sslcert or sslkey names a directory" }],
  ["ERR_BORINGSSL", { words: "sslrootcert, sslcert or sslkey names a file without a certificate or key in PEM" }],
  ["KEY_ENCRYPTED", { words: "sslkey names an encrypted key: decrypt it with openssl pkey" }],
  ["KEY_MISMATCH", { words: "sslkey names a key that does not belong to sslcert" }],
  ["ENOENT", { words: "sslrootcert, sslcert or sslkey names a missing file" }],
];

function meaningOf<Key extends keyof Meaning>(code: string, key: Key): Meaning[Key] | undefined {
  return MEANINGS.find(([prefix, meaning]) => code.startsWith(prefix) && meaning[key] !== undefined)?.[1][key];
}

/** What to do after an error. An unknown error is a fault. */
export function remedyFor(error: unknown): Remedy {
  return (error instanceof PostgresFailure ? meaningOf(error.code, "remedy") : undefined) ?? "fault";
}

/** `storage_unavailable`; the failure is its cause, for the log. */
export function unavailable(cause: unknown): PlantStoreError {
  const reason = (cause instanceof PostgresFailure ? meaningOf(cause.code, "reason") : undefined) ?? "storage is gone";
  const message = `${reason}; the plant may or may not be stored, send it again later`;
  return new PlantStoreError("storage_unavailable", message, { cause });
}

/**
 * An error for the operator, in one line that names the database. Any other error is a bug, and is returned unchanged.
 *
 * @param action What failed, such as `open`.
 */
export function toDatabaseError(action: string, database: string, error: unknown): unknown {
  if (error instanceof PlantStoreError) return toDatabaseError(action, database, error.cause);
  if (!(error instanceof DatabaseError || error instanceof PostgresFailure)) return error;
  return new DatabaseError(`Cannot ${action} database "${database}": ${error.message}`, { cause: error });
}

function describeCode(code: string): string {
  return `${meaningOf(code, "words") ?? "unexpected error"} (${code})`;
}
