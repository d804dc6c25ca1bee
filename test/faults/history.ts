import { type NewPlant, samePlant } from "../../src/plant/plant.ts";

/** One call of a client. Its times are of one monotonic clock, in milliseconds. */
export interface Operation {
  readonly id: bigint;
  readonly invoked: number;
  /** When its response came; `Infinity` if none did, or one that leaves the outcome open. */
  readonly returned: number;
  /**
   * What was seen:
   *
   * - `stored`: the plant of an add got 200;
   * - `conflict`: an add got 409;
   * - `unknown`: an add got anything else, and may take effect at any later time, or never;
   * - `read`: a read found `plant`, or nothing.
   */
  readonly outcome: "stored" | "conflict" | "unknown" | "read";
  readonly plant: NewPlant | undefined;
}

/**
 * The ids whose operations no order can explain, each with the reason. A history is linearizable if
 * there are none: every operation then takes effect at one moment between its call and its
 * response (Herlihy and Wing, 1990).
 *
 * A plant is created once and never changes, so each id is decided without a search. All that saw a
 * plant saw the same one. One moment must lie after the call of some add of that plant and after
 * the call of every read that found nothing, and before each response that saw the plant.
 */
export function violations(history: readonly Operation[]): string[] {
  const found: string[] = [];
  for (const [id, operations] of Map.groupBy(history, (operation) => operation.id)) {
    const reason = violation(operations);
    if (reason !== undefined) found.push(`${id}: ${reason}`);
  }
  return found;
}

/** Why no order explains the operations on one id; `undefined` if one does. */
function violation(operations: readonly Operation[]): string | undefined {
  const seen = operations.filter(
    ({ outcome, plant }) => outcome === "stored" || (outcome === "read" && plant !== undefined),
  );
  const conflicts = operations.filter(({ outcome }) => outcome === "conflict");
  // Each of these saw that some plant is there.
  const witnesses = [...seen, ...conflicts];
  if (witnesses.length === 0) return undefined;

  const candidates = candidatesFor(operations, seen);
  if (candidates.length === 0) return "a plant was seen that nobody sent";

  const reasons = candidates.map((plant) => {
    if (seen.some((operation) => !isSame(operation.plant, plant))) return "two plants were seen";
    if (conflicts.some((operation) => isSame(operation.plant, plant)))
      return "a plant got 409, and is the one that is stored";

    const adds = operations.filter(
      (add) => add.outcome !== "read" && add.outcome !== "conflict" && isSame(add.plant, plant),
    );
    const absent = operations.filter(
      ({ outcome, plant }) => outcome === "read" && plant === undefined,
    );
    const earliest = Math.max(
      Math.min(...adds.map(({ invoked }) => invoked)),
      ...absent.map(({ invoked }) => invoked),
    );
    const latest = Math.min(...witnesses.map(({ returned }) => returned));
    return earliest <= latest ? undefined : "it was seen, and then it was not there";
  });

  return reasons.includes(undefined) ? undefined : reasons[0];
}

/** The plants that may be the one that is stored: those that somebody sent and got no 409 for. */
function candidatesFor(
  operations: readonly Operation[],
  seen: readonly Operation[],
): readonly NewPlant[] {
  const sent = operations.filter(({ outcome }) => outcome === "stored" || outcome === "unknown");
  const plants = sent.flatMap(({ plant }) => plant ?? []);
  const [first] = seen;
  return first === undefined ? plants : plants.filter((plant) => isSame(first.plant, plant));
}

function isSame(one: NewPlant | undefined, other: NewPlant): boolean {
  return one !== undefined && one.id === other.id && samePlant(one, other);
}
