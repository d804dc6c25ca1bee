import {
  type ColumnValue,
  columnValue,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
} from "../../src/plant/plant.ts";

// The record of the tests, as an object, as JSON and as a row. Another record is changed here: a
// test that needs a field of a plant, or its bytes, takes the names from here.

/** A text that every plant has. */
export const TEXT = "name";

/** A text that a plant may have. */
export const OPTIONAL_TEXT = "tag";

/** What a test wants otherwise. An id that is a number is exact up to 2^53. */
type Change = Partial<Omit<NewPlant, "id">> & { readonly id?: bigint | number };

/** A plant with the id 1. */
export function fern({ id = 1n, ...change }: Change = {}): NewPlant {
  return { id: BigInt(id), name: "Fern", ...change };
}

/** A different plant, under the same id unless it is given another one. */
export function ivy(change: Change = {}): NewPlant {
  return fern({ [TEXT]: "Ivy", ...change });
}

/** A third one. */
export function moss(change: Change = {}): NewPlant {
  return fern({ [TEXT]: "Moss", ...change });
}

/** What the response to a stored plant has. */
export function returned(plant: NewPlant): Plant {
  const { id: _id, ...fields } = plant;
  return fields;
}

/** A plant as JSON: the body of a request, and the line of an export. */
export function jsonOf(plant: NewPlant): string {
  return `{"id":${plant.id},${membersOf(plant)}}`;
}

/** The members of that object beside `id`, for a test that writes the rest of it down. */
export function membersOf(plant: Plant): string {
  const fields = PLANT_FIELDS.filter((field) => plant[field] !== undefined);
  return fields
    .map((field) => `${JSON.stringify(field)}:${JSON.stringify(plant[field])}`)
    .join(",");
}

/** The members of {@linkcode fern}, its text written as this JSON. */
export function membersWith(json: string): string {
  return membersOf(fern()).replace('"Fern"', () => json);
}

/** The SQL that stores plants, as a program beside ours does. */
export function insertOf(...plants: readonly NewPlant[]): string {
  const rows = plants.map((plant) => [
    plant.id,
    ...PLANT_FIELDS.map((field) => columnValue(plant, field)),
  ]);
  const literals = rows.map((row) => `(${row.map(literalOf).join(", ")})`);
  const columns = ["id", ...PLANT_FIELDS].map((field) => `"${field}"`);
  return `INSERT INTO plants (${columns.join(", ")}) VALUES ${literals.join(", ")}`;
}

/** A value in SQL. */
export function literalOf(value: bigint | ColumnValue): string {
  if (value === null) return "NULL";
  return typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);
}
