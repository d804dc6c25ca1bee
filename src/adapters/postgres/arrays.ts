/** An array of integers as PostgreSQL reads it. */
export function bigintArray(values: readonly bigint[]): string {
  return `{${values.join(",")}}`;
}

/**
 * An array of texts as PostgreSQL reads it; what is absent is NULL. Every text comes out as it was, empty ones and "NULL"
 * too (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
 */
export function textArray(values: readonly (string | undefined)[]): string {
  return `{${values.map((value) => (value === undefined ? "NULL" : quoted(value))).join(",")}}`;
}

function quoted(text: string): string {
  return /["\\]/.test(text) ? `"${text.replaceAll(/["\\]/g, "\\$&")}"` : `"${text}"`;
}
