import { PlantStoreError } from "../../errors.ts";

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
  /** The server still works on a statement that was given up. */
  | "ABANDONED"
  /** The database was closed by this program. */
  | "DISPOSED"
  /** A row was there and is not any more: the statement is to be repeated. */
  | "ROW_GONE";

/** Takes the code of what Bun's client throws. Drizzle's wrapper has the statement's parameters: only its cause is read. */
export function toFailure(error: unknown): unknown {
  if (error instanceof PostgresFailure) return error;
  if (error instanceof Error && !(error instanceof Bun.SQL.SQLError) && error.cause instanceof Bun.SQL.SQLError) {
    return toFailure(error.cause);
  }
  if (error instanceof Bun.SQL.PostgresError) return new PostgresFailure(error.errno ?? error.code);
  // A certificate that is refused comes with the code of the TLS library.
  if (error instanceof Error && "code" in error && typeof error.code === "string")
    return new PostgresFailure(error.code);
  return error;
}

/** What to do after a failure: the same again, the same on a new connection, say that storage cannot, or it is a bug. */
export type Remedy = "repeat" | "reconnect" | "refuse" | "fault";

/** SQLSTATEs, and classes of them, by their beginning; the first that fits counts. */
const REMEDIES: readonly (readonly [code: string, remedy: Remedy])[] = [
  ["40", "repeat"],
  ["57014", "repeat"],
  // A lock was held for longer than the session's lock_timeout.
  ["55P03", "repeat"],
  ["ROW_GONE", "repeat"],
  ["ABANDONED", "repeat"],
  ["08", "reconnect"],
  ["25006", "reconnect"],
  // The transaction_timeout of the role or the database: PostgreSQL ends the session.
  ["25P04", "reconnect"],
  ["57", "reconnect"],
  ["ERR_POSTGRES_CONNECTION_", "reconnect"],
  // Bytes on the way were damaged, so nothing is known of what was sent.
  ["ERR_POSTGRES_INVALID_MESSAGE", "reconnect"],
  ["ERR_POSTGRES_UNEXPECTED_MESSAGE", "reconnect"],
  // Likewise, through TLS.
  ["EPROTO", "reconnect"],
  // A prepared statement that is not there: a pooler gave the connection to another server process.
  ["26000", "reconnect"],
  ["53300", "reconnect"],
  ["NO_SERVER", "reconnect"],
  ["DEADLINE", "refuse"],
  ["DISPOSED", "refuse"],
  ["UNSAFE", "refuse"],
  ["53", "refuse"],
  ["58", "refuse"],
  ["XX", "refuse"],
];

/** What to do after an error. What is not recognised is a fault. */
export function remedyFor(error: unknown): Remedy {
  if (!(error instanceof PostgresFailure)) return "fault";
  return REMEDIES.find(([prefix]) => error.code.startsWith(prefix))?.[1] ?? "fault";
}

/** What a state of the storage means to a client. */
const REASONS: readonly (readonly [code: string, reason: string])[] = [
  ["53100", "storage is full"],
  ["25006", "storage is read-only"],
  ["58", "storage has failed to read or write"],
  ["XX", "storage has failed"],
  ["DEADLINE", "storage did not finish in time"],
  ["55P03", "storage did not finish in time"],
  ["25P04", "storage did not finish in time"],
  ["ABANDONED", "storage did not finish in time"],
  ["ROW_GONE", "storage has lost a row to another transaction"],
];

/** `storage_unavailable`, with the failure as what the log may tell. */
export function unavailable(cause: unknown): PlantStoreError {
  const code = cause instanceof PostgresFailure ? cause.code : "";
  const reason = REASONS.find(([prefix]) => code.startsWith(prefix))?.[1] ?? "storage is gone";
  const message = `${reason}; the plant may or may not be stored, send it again later`;
  return new PlantStoreError("storage_unavailable", message, { cause });
}

const NAME_TAKEN =
  "a view, a type or a table of another application has a name that plant-store needs: use a schema of its own";

/** What an operator can act on, in words of our own. */
const WORDS: readonly (readonly [code: string, words: string])[] = [
  ["28", "it refuses this user or password"],
  ["3D000", "it has no such database"],
  ["42501", "the user may not do what is needed"],
  ["53300", "it takes no more connections"],
  ["57P03", "it is starting or stopping"],
  ["08P01", "it refuses the session's settings, as a pooler does: connect to PostgreSQL itself"],
  ["25006", "it is read-only"],
  ["25P04", "a transaction_timeout ended the session: raise that of the role or the database"],
  ["57014", "the statement was cancelled, or took longer than its statement_timeout"],
  ["57P01", "the connection was ended by an operator, or by a shutdown"],
  ["53100", "its disk is full"],
  ["42P01", "a table of plant-store's is not there: restore the backup"],
  ["42P07", NAME_TAKEN],
  ["42710", NAME_TAKEN],
  ["42703", "a table has the name of plant-store's and not its columns: use a schema of its own"],
  ["ERR_POSTGRES_CONNECTION_REFUSED", "nothing listens there, or no host has this name"],
  ["ERR_POSTGRES_TLS_NOT_AVAILABLE", "it does not speak TLS"],
  ["ERR_POSTGRES_CONNECTION_TIMEOUT", "it did not respond in time"],
  ["ERR_POSTGRES_CONNECTION_CLOSED", "the connection was closed"],
  ["DEADLINE", "it did not respond in time"],
  ["55P03", "another transaction held a lock for too long"],
  ["DEPTH_ZERO_", "its certificate is not trusted: sslrootcert names those that are"],
  ["SELF_SIGNED_", "its certificate is not trusted: sslrootcert names those that are"],
  ["UNABLE_TO_", "its certificate is not trusted: sslrootcert names those that are"],
  ["ERR_TLS_CERT_ALTNAME_INVALID", "its certificate is for another host"],
  ["CERT_HAS_EXPIRED", "its certificate, or one above it, has expired: renew it"],
  ["CERT_NOT_YET_VALID", "its certificate, or one above it, is not valid yet: look at the clocks"],
  ["EPROTO", "the TLS handshake failed: it may not trust sslcert"],
  ["ERR_INVALID_ARG_VALUE", "the environment's PGSSLMODE is not one that there is: remove it"],
  ["ERR_INVALID_ARG_TYPE", "sslrootcert, sslcert or sslkey names an empty file"],
  ["EISDIR", "sslrootcert, sslcert or sslkey names a directory"],
  ["ERR_BORINGSSL", "sslrootcert, sslcert or sslkey names a file that holds no certificate or key in PEM"],
  ["ENOENT", "sslrootcert, sslcert or sslkey names a file that is not there"],
  ["ABANDONED", "it still works on a statement that was given up"],
  ["ROW_GONE", "another transaction deleted a plant meanwhile"],
  ["DISPOSED", "it was closed"],
];

function describeCode(code: string): string {
  const words = WORDS.find(([prefix]) => code.startsWith(prefix))?.[1];
  return `${words ?? "unexpected error"} (${code})`;
}
