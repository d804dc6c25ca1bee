import { type Connection, LOCK_TIMEOUT_MS } from "./connection.ts";
import type { HeldIds } from "./held_ids.ts";

/** How to search for the plants that other transactions lock. */
interface LockSearch<Plant> {
  readonly connection: Connection;
  /** Inserts plants in one statement. Returns false if a lock timed out, which rolls it back. */
  readonly insert: (part: readonly Plant[]) => Promise<boolean>;
  /** Remembers the ids that are found. */
  readonly held: HeldIds;
  /** When the caller gives up, by `performance.now()`. */
  readonly deadline: number;
  /** How many locks to meet at most. */
  readonly maxLocks: number;
}

/**
 * How long each part of a batch waits for a lock, in milliseconds. All plants of the batch wait with
 * it. The batch as a whole has waited before, so a lock that is still held seldom ends soon.
 */
const PART_LOCK_TIMEOUT_MS = 5;
/** How many parts a batch is split into. */
const PARTS = 16;
/** How long before the deadline to stop, in milliseconds: the stored plants are to get their 200. */
const DEADLINE_MARGIN_MS = 100;

/**
 * Inserts plants in one statement. If that meets a lock, it inserts them in parts, which are split
 * likewise, down to the locked plants. It remembers the ids of those. Each statement that a lock
 * stops is an error in PostgreSQL's log.
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

/** Applies to the session, which a connection keeps. */
async function setLockTimeout(connection: Connection, timeoutMs: number): Promise<void> {
  await connection.query("SELECT set_config('lock_timeout', $1::text, false)", [String(timeoutMs)]);
}
