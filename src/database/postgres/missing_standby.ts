import type { DatabaseMetric, OnWarning } from "../adapter.ts";
import { PostgresFailure } from "./errors.ts";
import type { Work } from "./pool.ts";

/**
 * Checks whether commits of this role wait for a synchronous standby. Any role can see its own sessions,
 * the setting and the number of connected standbys, but not their names.
 *
 * @returns `NO_STANDBY`, with the setting; `undefined` if no commit waits.
 */
export const missingStandby: Work<PostgresFailure | undefined> = async ({ query }) => {
  const [waiting] = await query<Waiting>(WAITING);
  if (waiting === undefined) return undefined;

  const { names, standbys } = waiting;
  const connected = standbys === 1 ? "1 standby is" : `${standbys} standbys are`;
  return new PostgresFailure(
    "NO_STANDBY",
    `commits wait for a synchronous standby: synchronous_standby_names is '${names}', and ${connected} connected: connect one of those, or name one that is connected (NO_STANDBY)`,
  );
};

interface Waiting {
  readonly names: string;
  readonly standbys: number;
}

/** Finds a commit that has waited for half a second. A working standby takes milliseconds. */
const WAITING = `SELECT current_setting('synchronous_standby_names') AS names,
    (SELECT count(*)::int FROM pg_catalog.pg_stat_replication) AS standbys
  FROM pg_catalog.pg_stat_activity WHERE usename = current_user AND wait_event = 'SyncRep'
    AND query_start < now() - interval '500 ms' LIMIT 1`;

/**
 * Watches `synchronous_standby_names`. On a server that is promoted without it, commits do not wait for a
 * standby, and an acknowledged plant is on that server only.
 *
 * @param onWarning Called when the setting becomes empty.
 */
export function standbyWatch(onWarning: OnWarning = () => {}) {
  let names: string | undefined;

  return {
    /** Notes the setting of the server in use; `undefined` if unknown. */
    see(found: string | undefined): void {
      if (found === "" && names)
        onWarning(
          `New plants are on one server only: synchronous_standby_names is empty, and was '${names}' before`,
        );
      names = found ?? names;
    },

    /** Returns no metric before the setting is known. */
    metrics(): readonly DatabaseMetric[] {
      if (names === undefined) return [];
      return [
        {
          name: "plant_store_postgres_standbys_named",
          help: "1 if synchronous_standby_names is set on the server in use, else 0",
          type: "gauge",
          value: Number(names !== ""),
        },
      ];
    },
  };
}
