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

/** Whether each plant has the field. Fields are written in this order. */
const FIELDS: Readonly<Record<keyof Plant, "required" | "optional">> = {
  name: "required",
  tag: "optional",
};

/**
 * The names of the descriptive fields. Whatever parses, compares, stores, checks or prints plants
 * follows this list.
 */
export const PLANT_FIELDS = Object.keys(FIELDS) as readonly (keyof Plant)[];

/** Whether every plant has this field. */
export function isRequired(field: keyof Plant): boolean {
  return FIELDS[field] === "required";
}

/**
 * Builds a plant.
 *
 * @param textOf Called once for each field, in order. Returns `undefined` or `null` if the plant
 *   does not have it.
 */
export function plantOf(
  id: bigint,
  textOf: (field: keyof Plant) => string | null | undefined,
): NewPlant {
  const plant: { id: bigint } & Partial<Record<keyof Plant, string>> = { id };
  for (const field of PLANT_FIELDS) {
    const text = textOf(field);
    if (text !== undefined && text !== null) plant[field] = text;
  }
  return plant as NewPlant;
}

/** How long the texts of a plant are, in UTF-16 code units. */
export function textLength(plant: Plant): number {
  let length = 0;
  for (const field of PLANT_FIELDS) length += plant[field]?.length ?? 0;
  return length;
}

/**
 * Whether two plants have the same descriptive fields. Under the same id, the second is a retry of
 * the first.
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
  return PLANT_FIELDS.every((field) => one[field] === other[field]);
}
