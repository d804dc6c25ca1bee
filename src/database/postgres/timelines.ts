import type { Connection } from "./connection.ts";
import { codeOf, PostgresFailure } from "./errors.ts";

/**
 * Refuses an old primary: one that still runs after its standby was promoted. Its timeline is lower than
 * another that was seen, because a promotion begins a timeline with a greater number
 * (https://www.postgresql.org/docs/current/continuous-archiving.html). Otherwise a pause of the new primary
 * would lead back to the old one, which accepts revoked tokens and shows plants that were never acknowledged.
 */
export function newestTimelines() {
  /** The newest timeline by system identifier, which a primary and its standbys share. */
  const newest = new Map<string, number>();

  return {
    /** @throws {PostgresFailure} `NO_SERVER`, if the primary is an old one. */
    async verify(connection: Connection): Promise<void> {
      const found = await timelineOf(connection);
      if (found === undefined) return;

      const known = newest.get(found.system) ?? found.timeline;
      if (found.timeline < known) {
        const timelines = `its timeline is ${found.timeline}, and another server's ${known}`;
        throw new PostgresFailure(
          "NO_SERVER",
          `it is an old primary and must be fenced: ${timelines}`,
        );
      }
      newest.set(found.system, found.timeline);
    },
  };
}

interface Timeline {
  readonly system: string;
  readonly timeline: number;
}

/** Reads the timeline of a primary. Returns `undefined` on a standby, or if the role may not see it. */
async function timelineOf({ query }: Connection): Promise<Timeline | undefined> {
  try {
    const [row] = await query<{ system: string; file: string }>(TIMELINE);
    return row && { system: row.system, timeline: Number.parseInt(row.file.slice(0, 8), 16) };
  } catch (error) {
    // insufficient_privilege, undefined_function, and on a standby object_not_in_prerequisite_state
    if (!["42501", "42883", "55000"].includes(codeOf(error))) throw error;
    return undefined;
  }
}

/** The name of the WAL file begins with the timeline. The last checkpoint may have an older timeline. */
const TIMELINE = `SELECT system_identifier::text AS system, pg_walfile_name(pg_current_wal_lsn()) AS file
  FROM pg_control_system()`;
