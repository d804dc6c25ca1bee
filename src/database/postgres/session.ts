import { PostgresFailure } from "./errors.ts";

/** A server process, told from a later one with the same number. */
export interface Backend {
  readonly pid: number;
  /** Empty where PostgreSQL hides it from the current role. */
  readonly startedAt: string;
  /** When its server was started: in a container the numbers begin anew then. */
  readonly serverStartedAt: string;
}

// PostgreSQL hides all but the number of what another user runs, and after `ALTER ROLE … SET role` of what this one does.
// A process that waits for its client has nothing to do; nor has one without a lock, which it hides from nobody: a
// transaction has one on itself until after the wait for a standby.
const STILL_WORKS = `SELECT 1 FROM pg_stat_activity WHERE pid = $1::int AND pg_postmaster_start_time()::text = $3::text
  AND coalesce(backend_start::text = nullif($2::text, ''), true) AND wait_event_type IS DISTINCT FROM 'Client'
  AND EXISTS (SELECT 1 FROM pg_locks AS held WHERE held.pid = $1::int)`;

/** What runs a statement with its parameters, and gives the rows. */
interface Queryable {
  query(statement: string, parameters: readonly (string | number)[]): Promise<readonly unknown[]>;
}

/** Whether a server process works on a statement, as another connection finds. */
export async function stillWorks({ pid, startedAt, serverStartedAt }: Backend, other: Queryable): Promise<boolean> {
  return (await other.query(STILL_WORKS, [pid, startedAt, serverStartedAt])).length > 0;
}

/** What a session has to be. */
export interface SessionRequirements {
  /** Whether it has to take writes. */
  readonly writable: boolean;
  /** What {@linkcode NONCE} was set to when it was opened. */
  readonly nonce: string;
}

/**
 * A setting of our own. Only the server process of this very connection gives it back: a pooler keeps it for itself, or
 * hands on another client's.
 */
export const NONCE = "plant_store.nonce";

/**
 * What a role, a database or `postgresql.conf` may have otherwise, and would change what statements store or return, or
 * how the client reads it. Given when a connection starts, these win over all of them.
 */
export const SESSION_SETTINGS = {
  // "off" stores an absent tag as the text 'NULL'.
  array_nulls: "on",
  // The client reads no other.
  bytea_output: "hex",
  // "on" puts the names of types into quotes, by which a table's columns are known.
  quote_all_identifiers: "off",
  // "on" leaves out the rows that a policy hides, without a word; off, the statement fails, as pg_dump's does.
  row_security: "off",
} as const;

/**
 * Reads back what a 200 stands on; what must not be, and cannot be changed from here, is refused.
 *
 * @throws {PostgresFailure} `UNSAFE`, or 25006 where it is to take writes and is read-only.
 */
export async function makeSafe(session: Bun.ReservedSQL, { writable, nonce }: SessionRequirements): Promise<Backend> {
  const [found] = (await session.unsafe(SESSION)) as [Session];
  const refuse = (reason: string) => {
    throw new PostgresFailure("UNSAFE", reason);
  };
  if (found.encoding !== null && found.encoding !== "UTF8") refuse(`its encoding is ${found.encoding}, not UTF8`);
  if (found.nonce !== nonce) {
    refuse("a pooler in between drops the session's settings: connect to PostgreSQL itself");
  }
  for (const [name, value] of Object.entries(SESSION_SETTINGS)) {
    const other = found[name as keyof typeof SESSION_SETTINGS] ?? value;
    if (other !== value) refuse(`${name} is ${other} in spite of the session, not ${value}`);
  }
  if (writable && found.read_only === "on") throw new PostgresFailure("25006");
  for (const [setting, unsafe] of UNSAFE_SETTINGS) {
    if (writable && found[setting] === unsafe) {
      refuse(`${setting} is ${unsafe}, so it may lose what it has acknowledged`);
    }
  }
  return { pid: found.pid, startedAt: found.started ?? "", serverStartedAt: found.server_started };
}

/** With `data_sync_retry` on an fsync that failed is tried again, and may succeed without having written anything. */
const UNSAFE_SETTINGS = [
  ["fsync", "off"],
  ["full_page_writes", "off"],
  ["synchronous_commit", "off"],
  ["data_sync_retry", "on"],
] as const;

/**
 * `true`: a server that does not know a setting gives NULL. The commit's mode is set so that no reload changes it: to
 * `on`, which waits for the disk here and on a synchronous standby, or `remote_apply`, which waits for more.
 */
const SESSION = `SELECT pg_backend_pid() AS pid,
  (SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS started,
  pg_postmaster_start_time()::text AS server_started,
  current_setting('fsync', true) AS fsync,
  current_setting('full_page_writes', true) AS full_page_writes,
  current_setting('data_sync_retry', true) AS data_sync_retry,
  set_config('synchronous_commit', CASE current_setting('synchronous_commit', true)
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false) AS synchronous_commit,
  current_setting('transaction_read_only', true) AS read_only,
  current_setting('server_encoding', true) AS encoding,
  current_setting('array_nulls', true) AS array_nulls,
  current_setting('bytea_output', true) AS bytea_output,
  current_setting('quote_all_identifiers', true) AS quote_all_identifiers,
  current_setting('row_security', true) AS row_security,
  current_setting('${NONCE}', true) AS nonce`;

interface Session extends Readonly<Record<keyof typeof SESSION_SETTINGS, string | null>> {
  readonly pid: number;
  readonly started: string | null;
  readonly server_started: string;
  readonly fsync: string | null;
  readonly full_page_writes: string | null;
  readonly data_sync_retry: string | null;
  readonly synchronous_commit: string | null;
  readonly read_only: string | null;
  readonly encoding: string | null;
  readonly nonce: string | null;
}
