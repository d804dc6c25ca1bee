import {
  type ColumnValue,
  columnValue,
  faultOf,
  type FieldValue,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
} from "../../src/plant/plant.ts";

// What the programs beside ours know of a plant. They follow the list of its fields, so a fork with
// other fields measures without a change of them.

/** A plant as it came. */
export interface HandPlant extends Plant {
  readonly id: number;
}

/** Whether a value has the members of a plant. */
export function isPlant(value: unknown): value is HandPlant {
  if (typeof value !== "object" || value === null) return false;
  const members = value as Readonly<Record<string, unknown>>;
  return (
    Number.isSafeInteger(members["id"]) &&
    PLANT_FIELDS.every((field) => faultOf(field, members[field]) === undefined)
  );
}

/** What the response to a stored plant has. */
export function fieldsOf(plant: HandPlant): Plant {
  const fields: Partial<Record<keyof Plant, FieldValue>> = {};
  for (const field of PLANT_FIELDS) {
    const value = plant[field];
    if (value !== undefined) fields[field] = value;
  }
  return fields as Plant;
}

/** The columns of a plant, in SQL. */
export const COLUMNS = ["id", ...PLANT_FIELDS].map((field) => `"${field}"`).join(", ");

/** What they hold. */
export function valuesOf(plant: HandPlant): [id: number, ...ColumnValue[]] {
  return [plant.id, ...PLANT_FIELDS.map((field) => valueOf(plant, field))];
}

/** A plant as a row. */
export function rowOf(plant: HandPlant): Record<string, number | ColumnValue> & { id: number } {
  const row: Record<string, number | ColumnValue> & { id: number } = { id: plant.id };
  for (const field of PLANT_FIELDS) row[field] = valueOf(plant, field);
  return row;
}

/** Whether a row has the same fields as a plant. */
export function isRowOf(plant: HandPlant, row: Readonly<Record<string, unknown>>): boolean {
  return PLANT_FIELDS.every((field) => row[field] === valueOf(plant, field));
}

function valueOf(plant: Plant, field: keyof Plant): ColumnValue {
  // Only an id may be a `bigint`.
  return columnValue(plant as NewPlant, field) as ColumnValue;
}
