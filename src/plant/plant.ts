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

/** The kinds of values that a field may hold, and the type of each. */
interface KindValues {
  /** Any string that UTF-8 and PostgreSQL can hold. */
  readonly text: string;
}

/** The kind of a field. Each database has a table of all kinds: a missing entry is a type error. */
export type FieldKind = keyof KindValues;

/** The operations on values of a kind. */
interface Kind<Value> {
  /** Returns why a member of a JSON object is refused; `undefined` if it is valid. */
  faultOf(value: unknown): string | undefined;

  /** Whether two values are the same. */
  isSame(one: Value, other: Value): boolean;
}

const KINDS: { readonly [Name in FieldKind]: Kind<KindValues[Name]> } = {
  text: {
    /** PostgreSQL's text cannot hold U+0000, and UTF-8 no lone surrogate (RFC 3629, section 3). */
    faultOf(value) {
      if (typeof value !== "string") return "must be a string";
      if (value.isWellFormed() && !value.includes("\0")) return undefined;
      return "must not contain U+0000 or a lone surrogate";
    },
    isSame: (one, other) => one === other,
  },
};

/** The kind of a field, and whether every plant has it. */
type FieldOf<Value> = {
  readonly [Name in FieldKind]: KindValues[Name] extends Value
    ? { readonly kind: Name; readonly presence: "required" | "optional" }
    : never;
}[FieldKind];

/** The fields, in the order of output. */
const FIELDS: { readonly [Field in keyof Plant]-?: FieldOf<NonNullable<Plant[Field]>> } = {
  name: { kind: "text", presence: "required" },
  tag: { kind: "text", presence: "optional" },
};

/**
 * The names of the descriptive fields. All code that parses, compares, stores or prints plants
 * iterates over this list.
 */
export const PLANT_FIELDS = Object.keys(FIELDS) as readonly (keyof Plant)[];

/** Returns the kind of a field. */
export function kindOf(field: keyof Plant): FieldKind {
  return FIELDS[field].kind;
}

/** Whether every plant has this field. */
export function isRequired(field: keyof Plant): boolean {
  return FIELDS[field].presence === "required";
}

/** The value of a field. */
export type FieldValue = NonNullable<Plant[keyof Plant]>;

/** Returns why a member of a JSON object is refused; `undefined` if it is valid. */
export function faultOf(field: keyof Plant, value: unknown): string | undefined {
  if (value === undefined) return isRequired(field) ? "is missing" : undefined;
  return kindOfField(field).faultOf(value);
}

function kindOfField(field: keyof Plant): Kind<FieldValue> {
  return KINDS[FIELDS[field].kind];
}

/**
 * Builds a plant.
 *
 * @param valueOf Called once for each field, in order. Returns `undefined` or `null` if the plant
 *   does not have the field.
 */
export function plantOf(
  id: bigint,
  valueOf: (field: keyof Plant) => FieldValue | null | undefined,
): NewPlant {
  const plant: { id: bigint } & Partial<Record<keyof Plant, FieldValue>> = { id };
  for (const field of PLANT_FIELDS) {
    const value = valueOf(field);
    if (value !== undefined && value !== null) plant[field] = value;
  }
  return plant as NewPlant;
}

/** The value of a field in a column: `null` if the plant does not have the field. */
export type ColumnValue = FieldValue | null;

/** Returns the id or a field of a plant, for a column of a database or of CSV. */
export function columnValue(plant: NewPlant, field: keyof NewPlant): bigint | ColumnValue {
  return plant[field] ?? null;
}

/**
 * Builds a plant from a row, or from an object with its fields. An old row may lack a new field.
 */
export function plantOfRow(
  id: bigint,
  row: { readonly [Field in keyof Plant]?: FieldValue | null },
): NewPlant {
  return plantOf(id, (field) => row[field]);
}

/** Returns the length of a plant's texts in UTF-16 code units: other values take little room. */
export function sizeOf(plant: Plant): number {
  let size = 0;
  for (const field of PLANT_FIELDS) {
    const value: FieldValue | undefined = plant[field];
    if (typeof value === "string") size += value.length;
  }
  return size;
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
 * assert(!samePlant({ name: "Fern" }, { name: "Ivy" }));
 * ```
 */
export function samePlant(one: Plant, other: Plant): boolean {
  return PLANT_FIELDS.every((field) => {
    const value = one[field];
    const rival = other[field];
    if (value === undefined || rival === undefined) return value === rival;
    return kindOfField(field).isSame(value, rival);
  });
}
