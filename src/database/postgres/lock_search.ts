import { type Connection, LOCK_TIMEOUT_MS } from "./connection.ts";
import type { HeldIds } from "./held_ids.ts";

/** Options of {@linkcode insertBesideLocks}. */
interface LockSearch<Plant> {
  readonly connection: Connection;
  /** Inserts plants in one statement. Returns false if it waited too long for a lock, and was rolled back. */
  readonly insert: (part: readonly Plant[]) => Promise<boolean>;
  /** Remembers the ids that are found to be locked. */
  readonly held: HeldIds;
  /** When the caller gives up, by `performance.now()`. */
  readonly deadline: number;
  /** The maximum number of lock timeouts. */
  readonly maxLocks: number;
}

/**
 * The `lock_timeout` for a part of a batch, in milliseconds. The whole batch waits meanwhile. It has already
 * waited once, so a lock that is still held seldom ends soon.
 */
const PART_LOCK_TIMEOUT_MS = 5;
/** How many parts a batch is split into. */
const PARTS = 16;
/** How long before the deadline to stop, in milliseconds, so that the stored plants get their 200. */
const DEADLINE_MARGIN_MS = 100;

/**
 * Inserts plants in one statement. If that waits too long for a lock, splits the plants into parts, and
 * each part again, until it finds the locked plants. Remembers their ids. Each lock timeout is an error in
 * PostgreSQL's log.
 */
export async function insertBesideLocks<Plant extends { readonly id: bigint }>(
  plants: readonly Plant[],
  { connection, insert, held, deadline, maxLocks }: LockSearch<Plant>,
): Promise<void> {
  const parts = [plants];
  let locks = 0;

  await setLockTimeout(connection, PART_LOCK_TIMEOUT_MS);
  try {
    while (locks < maxLocks && performance.now() < deadline - DEADLINE_MARGIN_MS) {
      const part = parts.pop();
      if (part === undefined) break;
      if (await insert(part)) continue;

      locks++;
      if (part.length > 1) {
        parts.push(...split(part));
        continue;
      }
      for (const { id } of part) held.met(id);
    }
  } finally {
    await setLockTimeout(connection, LOCK_TIMEOUT_MS);
  }
}

function split<Plant>(plants: readonly Plant[]): readonly (readonly Plant[])[] {
  const partSize = Math.ceil(plants.length / PARTS);
  const count = Math.ceil(plants.length / partSize);
  return Array.from({ length: count }, (_, part) =>
    plants.slice(part * partSize, (part + 1) * partSize),
  );
}

/** Sets `lock_timeout` for the session. */
async function setLockTimeout(connection: Connection, timeoutMs: number): Promise<void> {
  await connection.query("SELECT set_config('lock_timeout', $1::text, false)", [String(timeoutMs)]);
}
