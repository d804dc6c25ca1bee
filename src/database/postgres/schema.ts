import { bigint, customType, integer, pgTable, text, timestamp } from "drizzle-orm/pg-core";

const bytes = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => "bytea" });

/** A moment, to the millisecond that a `Date` has. */
const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3 });

/** The plants, by the id their client chose. */
export const plants = pgTable("plants", {
  id: bigint({ mode: "bigint" }).primaryKey(),
  name: text().notNull(),
  tag: text(),
});

/** Bearer tokens: the SHA-256 only, so a copy of the database gives no access. */
export const tokens = pgTable("tokens", {
  name: text().primaryKey(),
  digest: bytes().notNull().unique(),
  createdAt: instant("created_at").notNull(),
  expiresAt: instant("expires_at"),
  revokedAt: instant("revoked_at"),
  lastUsedAt: instant("last_used_at"),
  /** What the bearer may do, separated by spaces (RFC 6749, section 3.3). */
  scopes: text().notNull(),
});

/** One row, another number after each change of the tokens. Servers read it to know whether to read the tokens. */
export const tokenRevision = pgTable("token_revision", {
  id: integer().primaryKey(),
  revision: bigint({ mode: "bigint" }).notNull(),
});

/** A few rows, one of which a probe writes: that commits as a plant does, and touches none. */
export const probes = pgTable("probes", {
  id: integer().primaryKey(),
  probedAt: instant("probed_at").notNull(),
});

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
  // JSON escapes the same two characters, and also control characters, which PostgreSQL takes as they are.
  return /\p{Cc}/u.test(text) ? `"${escaped(text)}"` : JSON.stringify(text);
}

/** By UTF-16 code units: if most of them are escaped, `replaceAll` takes up to ten times as long. */
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
