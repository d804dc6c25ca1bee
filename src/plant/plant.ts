/**
 * The smallest int64.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { INT64_MIN } from "plant-store";
 *
 * assert.equal(BigInt.asIntN(64, INT64_MIN - 1n), 2n ** 63n - 1n);
 * ```
 */
export const INT64_MIN = -(2n ** 63n);
/**
 * The largest int64.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { INT64_MAX } from "plant-store";
 *
 * assert.equal(INT64_MAX, 9_223_372_036_854_775_807n);
 * ```
 */
export const INT64_MAX = 2n ** 63n - 1n;

/** A plant's descriptive fields. */
export interface Plant {
  readonly name: string;
  /** The type of the plant; absent if none was sent. */
  readonly tag?: string;
}

/** A plant to store. */
export interface NewPlant extends Plant {
  /** Any int64, exactly. */
  readonly id: bigint;
}

/**
 * Whether two plants have the same descriptive fields. Under the same id, the second is a retry of the first.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { samePlant } from "plant-store";
 *
 * assert(samePlant({ name: "Fern" }, { name: "Fern" }));
 * assert(!samePlant({ name: "Fern" }, { name: "Fern", tag: "" }));
 * ```
 */
export function samePlant(one: Plant, other: Plant): boolean {
  return one.name === other.name && one.tag === other.tag;
}
