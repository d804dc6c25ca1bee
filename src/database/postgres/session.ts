import { PostgresFailure } from "./errors.ts";

/**
 * Sets and reads back the settings that make a commit durable, and refuses unsafe ones.
 *
 * @param acceptsStandby Whether the session may be read-only, as on a standby.
 * @throws {PostgresFailure} `UNSAFE`, or 25006 if the session is read-only and must not be.
 */
export async function verifySession(
  session: Bun.ReservedSQL,
  nonce: string,
  acceptsStandby: boolean,
): Promise<void> {
  const [found] = (await session.unsafe(SESSION)) as [Session];

  const engine = ENGINES.find(([mark]) => found.version.includes(mark))?.[1];
  if (engine !== undefined) refuse(`it is ${engine}, which is untested: use PostgreSQL itself`);

  if (found.encoding !== null && found.encoding !== "UTF8")
    refuse(
      `its encoding is ${found.encoding}, not UTF8: create a database with ENCODING 'UTF8' TEMPLATE template0`,
    );
  if (found.nonce !== nonce)
    refuse("a pooler drops session settings: connect to PostgreSQL directly");

  if (found.read_only === "on" && !acceptsStandby) throw new PostgresFailure("25006");
  requireDurable(found);
}

/**
 * A setting of our own, which detects a pooler. A pooler drops it, or returns another client's value.
 */
export const NONCE = "plant_store.nonce";

/**
 * Settings that change what statements store and return. Sent when a connection starts, they override the
 * settings of the role, the database and `postgresql.conf`.
 */
export const SESSION_SETTINGS = {
  // "off" stores an absent tag as the text 'NULL'.
  array_nulls: "on",
  // Bun's client reads these forms of bytea and timestamptz.
  bytea_output: "hex",
  DateStyle: "ISO",
  // "on" silently omits the rows that a policy hides. With "off" the statement fails, as in
  // pg_dump.
  row_security: "off",
} as const;

/** Substrings of `version()` in other engines that speak PostgreSQL's protocol. */
const ENGINES = [
  ["CockroachDB", "CockroachDB"],
  ["-YB-", "YugabyteDB"],
] as const;

/**
 * The settings with which the server may lose commits. With `data_sync_retry` it retries a failed fsync,
 * which may succeed without writing anything.
 */
const UNSAFE_SETTINGS = {
  fsync: "off",
  full_page_writes: "off",
  synchronous_commit: "off",
  data_sync_retry: "on",
} as const;

/**
 * The settings that decide whether a commit is durable; null if the server does not have the setting.
 */
export type Durability = Readonly<Record<keyof typeof UNSAFE_SETTINGS, string | null>>;

/** The columns of {@linkcode Durability}. */
export const DURABILITY = Object.keys(UNSAFE_SETTINGS)
  .map((name) => `current_setting('${name}', true) AS ${name}`)
  .join(", ");

/** @throws {PostgresFailure} `UNSAFE`, if the server may lose acknowledged plants. */
export function requireDurable(found: Durability): void {
  for (const [setting, unsafe] of Object.entries(UNSAFE_SETTINGS)) {
    const isUnsafe = found[setting as keyof Durability] === unsafe;
    const safe = unsafe === "on" ? "off" : "on";
    if (isUnsafe)
      refuse(`${setting} is ${unsafe}, so it may lose acknowledged plants: set it to ${safe}`);
  }
}

function refuse(reason: string): never {
  throw new PostgresFailure("UNSAFE", reason);
}

/**
 * Sets `synchronous_commit` for the session, so that a reload cannot change it, and reads all that
 * {@linkcode verifySession} checks. `on` waits for the disks of the primary and of a synchronous standby.
 * Keeps `remote_apply`, which waits for more.
 */
const SESSION = `SELECT ${DURABILITY},
  version() AS version,
  current_setting('transaction_read_only', true) AS read_only,
  current_setting('server_encoding', true) AS encoding,
  current_setting('${NONCE}', true) AS nonce
  FROM (SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit', true)
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)) AS changed`;

/** The row of {@linkcode SESSION}. */
type Session = Readonly<Record<SettingName, string | null> & { version: string }>;

type SettingName = keyof Durability | "read_only" | "encoding" | "nonce";
