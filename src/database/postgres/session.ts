import { PostgresFailure } from "./errors.ts";

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
 * @returns Whether the server is a standby.
 * @throws {PostgresFailure} `UNSAFE`, or 25006 if the session has to take writes and is read-only.
 */
export async function verifySession(
  session: Bun.ReservedSQL,
  { writable, nonce }: SessionRequirements,
): Promise<boolean> {
  const [found] = (await session.unsafe(SESSION)) as [Session];
  if (found.encoding !== null && found.encoding !== "UTF8") refuse(`its encoding is ${found.encoding}, not UTF8`);
  if (found.nonce !== nonce) {
    refuse("a pooler in between drops the session's settings: connect to PostgreSQL itself");
  }
  for (const [name, value] of Object.entries(SESSION_SETTINGS)) {
    const other = found[name as keyof typeof SESSION_SETTINGS] ?? value;
    if (other !== value) refuse(`${name} is ${other} in spite of the session, not ${value}`);
  }
  if (writable && found.read_only === "on") throw new PostgresFailure("25006");
  if (writable) requireDurable(found);
  return found.is_standby;
}

/** With `data_sync_retry` on an fsync that failed is tried again, and may succeed without having written anything. */
const UNSAFE_SETTINGS = {
  fsync: "off",
  full_page_writes: "off",
  synchronous_commit: "off",
  data_sync_retry: "on",
} as const;

/** What decides whether a commit is durable, as a server has it. One that does not know a setting gives null. */
export type Durability = Readonly<Record<keyof typeof UNSAFE_SETTINGS, string | null>>;

/** The columns of {@linkcode Durability}. `true`: a setting that the server does not know is null. */
export const DURABILITY = Object.keys(UNSAFE_SETTINGS)
  .map((name) => `current_setting('${name}', true) AS ${name}`)
  .join(", ");

/** @throws {PostgresFailure} `UNSAFE`, if the server may lose what it has acknowledged. */
export function requireDurable(found: Durability): void {
  for (const [setting, unsafe] of Object.entries(UNSAFE_SETTINGS)) {
    if (found[setting as keyof Durability] === unsafe) {
      refuse(`${setting} is ${unsafe}, so it may lose what it has acknowledged`);
    }
  }
}

function refuse(reason: string): never {
  throw new PostgresFailure("UNSAFE", reason);
}

/**
 * The commit's mode is set so that no reload changes it: to `on`, which waits for the disk here and on a synchronous
 * standby, or `remote_apply`, which waits for more.
 */
const SESSION = `SELECT ${DURABILITY}, pg_is_in_recovery() AS is_standby,
  current_setting('transaction_read_only', true) AS read_only,
  current_setting('server_encoding', true) AS encoding,
  current_setting('array_nulls', true) AS array_nulls,
  current_setting('bytea_output', true) AS bytea_output,
  current_setting('quote_all_identifiers', true) AS quote_all_identifiers,
  current_setting('row_security', true) AS row_security,
  current_setting('${NONCE}', true) AS nonce
  FROM (SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit', true)
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)) AS changed`;

interface Session extends Durability, Readonly<Record<keyof typeof SESSION_SETTINGS, string | null>> {
  readonly is_standby: boolean;
  readonly read_only: string | null;
  readonly encoding: string | null;
  readonly nonce: string | null;
}
