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
  if (!/["\\]/.test(text)) return `"${text}"`;
  // JSON escapes the same two characters, and control characters too, which PostgreSQL takes as they are.
  return /\p{Cc}/u.test(text) ? `"${escaped(text)}"` : JSON.stringify(text);
}

/** By UTF-16 code units: where most of them are escaped, `replaceAll` takes up to ten times as long. */
function escaped(text: string): string {
  const units = new Uint16Array(2 * text.length);
  let length = 0;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit === QUOTE || unit === BACKSLASH) units[length++] = BACKSLASH;
    units[length++] = unit;
  }
  return Buffer.from(units.buffer, 0, 2 * length).toString("utf16le");
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
