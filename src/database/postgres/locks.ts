import type { NewPlant } from "../../plant/plant.ts";
import { type Connection, LOCK_TIMEOUT_MS } from "./connection.ts";
import { PostgresFailure } from "./errors.ts";

/** What a statement gave of the plants that no other transaction holds, and the plants that one does, or may. */
export interface UnlockedRows<Row> {
  readonly rows: readonly Row[];
  readonly locked: readonly NewPlant[];
}

/** A statement over these plants; it waits for none of them longer than the session's `lock_timeout`. */
export type Statement<Row> = (plants: readonly NewPlant[]) => Promise<readonly Row[]>;

/** How long a statement over a part waits for a lock, in milliseconds: each plant that is locked costs several. */
const PART_LOCK_TIMEOUT_MS = 10;
/** How long all parts may take, in milliseconds: a lane that many locks keep busy is given to others in between. */
const PARTS_TIMEOUT_MS = 1_000;
/** How long before the deadline the last part begins, in milliseconds: what was stored until then is to be told. */
const DEADLINE_MARGIN_MS = 100;

/**
 * Runs a statement over plants, and over parts of them where it meets a lock of another transaction, so that only those
 * behind a lock are left out. A statement that met one was rolled back. Each lock costs as many statements as the plants
 * can be halved, and all of them end within a second, and before the deadline.
 *
 * @param deadline When the work is given up, as `performance.now()` has it.
 */
export async function passLocks<Row>(
  connection: Connection,
  plants: readonly NewPlant[],
  statement: Statement<Row>,
  deadline: number,
): Promise<UnlockedRows<Row>> {
  const rows = await unlessLocked(statement, plants);
  if (rows !== undefined) return { rows, locked: [] };
  const end = Math.min(performance.now() + PARTS_TIMEOUT_MS, deadline - DEADLINE_MARGIN_MS);
  if (plants.length === 1 || performance.now() >= end) return { rows: [], locked: plants };
  await setLockTimeout(connection, PART_LOCK_TIMEOUT_MS);
  try {
    // Without a plant, only a lock on the whole table is met.
    if ((await unlessLocked(statement, [])) === undefined) return { rows: [], locked: plants };
    return await byHalves(plants, statement, end);
  } finally {
    await setLockTimeout(connection, LOCK_TIMEOUT_MS);
  }
}

/** Halves what meets a lock, down to single plants, until the end. */
async function byHalves<Row>(
  plants: readonly NewPlant[],
  statement: Statement<Row>,
  end: number,
): Promise<UnlockedRows<Row>> {
  const rows: Row[] = [];
  const locked: NewPlant[] = [];
  const parts = halvesOf(plants);
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    const isLate = performance.now() >= end;
    const found = isLate ? undefined : await unlessLocked(statement, part);
    if (found !== undefined) rows.push(...found);
    else if (isLate || part.length === 1) locked.push(...part);
    else parts.push(...halvesOf(part));
  }
  return { rows, locked };
}

/** In any order: where the time was not enough, the next call begins elsewhere. */
function halvesOf(plants: readonly NewPlant[]): (readonly NewPlant[])[] {
  const middle = Math.ceil(plants.length / 2);
  const halves = [plants.slice(0, middle), plants.slice(middle)];
  return Math.random() < 0.5 ? halves : halves.toReversed();
}

/** The rows of a statement, or `undefined` where it met a lock, and was rolled back. */
async function unlessLocked<Row>(
  statement: Statement<Row>,
  plants: readonly NewPlant[],
): Promise<readonly Row[] | undefined> {
  try {
    return await statement(plants);
  } catch (error) {
    if (error instanceof PostgresFailure && error.code === LOCK_NOT_AVAILABLE) return undefined;
    throw error;
  }
}

/** The SQLSTATE of a statement that waited for a lock longer than `lock_timeout`. */
const LOCK_NOT_AVAILABLE = "55P03";

/** Of the session: a connection never turns into another one. */
async function setLockTimeout(connection: Connection, timeoutMs: number): Promise<void> {
  await connection.query("SELECT set_config('lock_timeout', $1::text, false)", [String(timeoutMs)]);
}
