import { PlantStoreError } from "../../errors.ts";
import { DatabaseError } from "../database.ts";

/**
 * What PostgreSQL or the way to it refused: nothing of it but the code, for the text that comes with it may quote
 * what was sent. Codes are SQLSTATEs (https://www.postgresql.org/docs/current/errcodes-appendix.html), Bun's own
 * `ERR_POSTGRES_…` of connections, or one of {@linkcode OwnCode}.
 */
export class PostgresFailure extends Error {
  override readonly name = "PostgresFailure";
  readonly code: string;

  constructor(code: string, message: string = describeCode(code)) {
    super(message);
    this.code = code;
  }
}

/** What only this program knows of a connection. */
export type OwnCode =
  /** A statement or a connection took too long. */
  | "DEADLINE"
  /** No server could be used. */
  | "NO_SERVER"
  /** A setting of the server would break what a 200 promises. */
  | "UNSAFE"
  /** The client's own key is encrypted, or not that of its certificate. */
  | "KEY_ENCRYPTED"
  | "KEY_MISMATCH"
  /** The server gives out no transaction ids until it is vacuumed. */
  | "WRAPAROUND"
  /** The database was closed by this program. */
  | "DISPOSED";

/** The server's functions that refuse with 54000 near a wraparound; of others, 54000 is a row that is too large. */
const GIVES_OUT_IDS = /^GetNew(?:TransactionId|MultiXactId)$/;

/** Takes the code of what Bun's client throws. Drizzle's wrapper has the statement's parameters: only its cause is read. */
export function toFailure(error: unknown): unknown {
  if (error instanceof PostgresFailure) return error;
  if (error instanceof Error && !(error instanceof Bun.SQL.SQLError) && error.cause instanceof Bun.SQL.SQLError) {
    return toFailure(error.cause);
  }
  if (error instanceof Bun.SQL.PostgresError) {
    const isWraparound = error.errno === "54000" && GIVES_OUT_IDS.test(error.routine ?? "");
    return new PostgresFailure(isWraparound ? "WRAPAROUND" : (error.errno ?? error.code));
  }
  // A certificate that is refused comes with the code of the TLS library.
  if (error instanceof Error && "code" in error && typeof error.code === "string")
    return new PostgresFailure(error.code);
  return error;
}

/** What to do after a failure: the same again, the same on a new connection, say that storage cannot, or it is a bug. */
export type Remedy = "repeat" | "reconnect" | "refuse" | "fault";

/** What a code means: to the program, to a client, and to an operator, in words that say what to do. */
interface Meaning {
  readonly remedy?: Remedy;
  readonly reason?: string;
  readonly words?: string;
}

const NOT_IN_TIME = "storage did not finish in time";
const NAME_TAKEN =
  "a view, a type or a table of another application has a name that plant-store needs: use a schema of its own";
const NOT_TRUSTED = "its certificate is not trusted: sslrootcert names those that are";

/** SQLSTATEs, classes of them and other codes, by their beginning; of each column the first row that fits counts. */
const MEANINGS: readonly (readonly [code: string, meaning: Meaning])[] = [
  ["55P03", { remedy: "repeat", reason: NOT_IN_TIME, words: "another transaction held a lock for too long" }],
  ["57014", { remedy: "repeat", words: "the statement was cancelled, or took longer than its statement_timeout" }],
  ["40", { remedy: "repeat" }],
  ["08P01", { words: "it refuses the session's settings, as a pooler does: connect to PostgreSQL itself" }],
  ["08", { remedy: "reconnect" }],
  ["25006", { remedy: "reconnect", reason: "storage is read-only", words: "it is read-only" }],
  [
    "25P04",
    {
      remedy: "reconnect",
      reason: NOT_IN_TIME,
      words: "a transaction_timeout ended the session: raise that of the role or the database",
    },
  ],
  ["57P01", { words: "the connection was ended by an operator, or by a shutdown" }],
  ["57P03", { words: "it is starting or stopping" }],
  ["57", { remedy: "reconnect" }],
  // A prepared statement that is not there: a pooler gave the connection to another server process.
  ["26000", { remedy: "reconnect" }],
  ["53300", { remedy: "reconnect", words: "it takes no more connections" }],
  ["NO_SERVER", { remedy: "reconnect" }],
  ["ERR_POSTGRES_CONNECTION_REFUSED", { words: "nothing listens there, or no host has this name" }],
  ["ERR_POSTGRES_CONNECTION_TIMEOUT", { words: "it did not respond in time" }],
  ["ERR_POSTGRES_CONNECTION_CLOSED", { words: "the connection was closed" }],
  ["ERR_POSTGRES_CONNECTION_", { remedy: "reconnect" }],
  // Bytes on the way were damaged, so nothing is known of what was sent.
  ["ERR_POSTGRES_INVALID_MESSAGE", { remedy: "reconnect" }],
  ["ERR_POSTGRES_UNEXPECTED_MESSAGE", { remedy: "reconnect" }],
  // Likewise, through TLS.
  ["EPROTO", { remedy: "reconnect", words: "the TLS handshake failed: it may not trust sslcert" }],
  ["DEADLINE", { remedy: "refuse", reason: NOT_IN_TIME, words: "it did not respond in time" }],
  ["DISPOSED", { remedy: "refuse", words: "it was closed" }],
  ["UNSAFE", { remedy: "refuse" }],
  [
    "WRAPAROUND",
    {
      remedy: "refuse",
      reason: "storage needs maintenance",
      words: "it has no transaction ids left: VACUUM the oldest database, and end old transactions",
    },
  ],
  ["53100", { reason: "storage is full", words: "its disk is full" }],
  ["53", { remedy: "refuse" }],
  ["58", { remedy: "refuse", reason: "storage has failed to read or write" }],
  ["XX", { remedy: "refuse", reason: "storage has failed" }],
  ["28", { words: "it refuses this user or password" }],
  ["3D000", { words: "it has no such database" }],
  ["42501", { words: "the user may not do what is needed" }],
  ["42P01", { words: "a table of plant-store's is not there: restore the backup" }],
  ["42P07", { words: NAME_TAKEN }],
  ["42710", { words: NAME_TAKEN }],
  ["42703", { words: "a table has the name of plant-store's and not its columns: use a schema of its own" }],
  ["ERR_POSTGRES_TLS_NOT_AVAILABLE", { words: "it does not speak TLS" }],
  ["DEPTH_ZERO_", { words: NOT_TRUSTED }],
  ["SELF_SIGNED_", { words: NOT_TRUSTED }],
  ["UNABLE_TO_", { words: NOT_TRUSTED }],
  ["ERR_TLS_CERT_ALTNAME_INVALID", { words: "its certificate is for another host" }],
  ["CERT_HAS_EXPIRED", { words: "its certificate, or one above it, has expired: renew it" }],
  ["CERT_NOT_YET_VALID", { words: "its certificate, or one above it, is not valid yet: look at the clocks" }],
  ["ERR_INVALID_ARG_VALUE", { words: "the environment's PGSSLMODE is not one that there is: remove it" }],
  ["ERR_INVALID_ARG_TYPE", { words: "sslrootcert, sslcert or sslkey names an empty file" }],
  ["EISDIR", { words: "sslrootcert, sslcert or sslkey names a directory" }],
  ["ERR_BORINGSSL", { words: "sslrootcert, sslcert or sslkey names a file that holds no certificate or key in PEM" }],
  ["KEY_ENCRYPTED", { words: "sslkey names a key that is encrypted: decrypt it with openssl pkey" }],
  ["KEY_MISMATCH", { words: "sslkey names a key that is not that of sslcert" }],
  ["ENOENT", { words: "sslrootcert, sslcert or sslkey names a file that is not there" }],
];

function meaningOf<Key extends keyof Meaning>(code: string, key: Key): Meaning[Key] | undefined {
  return MEANINGS.find(([prefix, meaning]) => code.startsWith(prefix) && meaning[key] !== undefined)?.[1][key];
}

/** What to do after an error. What is not recognised is a fault. */
export function remedyFor(error: unknown): Remedy {
  return (error instanceof PostgresFailure ? meaningOf(error.code, "remedy") : undefined) ?? "fault";
}

/** `storage_unavailable`, with the failure as what the log may tell. */
export function unavailable(cause: unknown): PlantStoreError {
  const reason = (cause instanceof PostgresFailure ? meaningOf(cause.code, "reason") : undefined) ?? "storage is gone";
  const message = `${reason}; the plant may or may not be stored, send it again later`;
  return new PlantStoreError("storage_unavailable", message, { cause });
}

/**
 * For the operator, in one line that names the database. Anything else is a bug, and comes back unchanged.
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
