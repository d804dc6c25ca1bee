import { type SQL, sql, type SQLWrapper } from "drizzle-orm";
import { bigint, customType, integer, pgTable, text, timestamp } from "drizzle-orm/pg-core";

import type { FieldKind, FieldValue, NewPlant } from "../../plant/plant.ts";

const bytes = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => "bytea" });

/** A timestamp to the millisecond, as a `Date`. */
const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3 });

/** The plants. Clients choose the id. */
export const plants = pgTable("plants", {
  id: bigint({ mode: "bigint" }).primaryKey(),
  name: text().notNull(),
  tag: text(),
} satisfies Record<keyof NewPlant, unknown>);

/** Bearer tokens. Only the SHA-256 is stored, so a copy of the database gives no access. */
export const tokens = pgTable("tokens", {
  name: text().primaryKey(),
  digest: bytes().notNull().unique(),
  createdAt: instant("created_at").notNull(),
  expiresAt: instant("expires_at"),
  revokedAt: instant("revoked_at"),
  lastUsedAt: instant("last_used_at"),
  /** The scopes, separated by spaces (RFC 6749, section 3.3). */
  scopes: text().notNull(),
});

/**
 * One row, with a new number after each change of the tokens. Servers read it to learn whether to
 * reload the tokens.
 */
export const tokenRevision = pgTable("token_revision", {
  id: integer().primaryKey(),
  revision: bigint({ mode: "bigint" }).notNull(),
});

/** Rows for probes. A probe updates one of them, and so commits like a plant without changing one. */
export const probes = pgTable("probes", {
  id: integer().primaryKey(),
  probedAt: instant("probed_at").notNull(),
});

/** How the statements treat a kind of field. */
interface ColumnKind {
  /** Formats values as a PostgreSQL array literal; `undefined` becomes NULL. */
  array(values: readonly (FieldValue | undefined)[]): string;

  /** Returns the SQL expression for the length of a value, in bytes. */
  bytes(column: SQLWrapper): SQL;
}

/** The kinds of fields. The schema above declares the type of each column. */
export const COLUMN_KINDS: Readonly<Record<FieldKind, ColumnKind>> = {
  text: { array: textArray, bytes: (column) => sql`octet_length(${column})` },
};

/** An array of integers as a PostgreSQL literal. */
export function bigintArray(values: readonly bigint[]): string {
  return `{${values.join(",")}}`;
}

/**
 * Formats texts as a PostgreSQL array literal; `undefined` becomes NULL. Exact for every text, even "" and
 * "NULL" (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
 */
export function textArray(values: readonly (string | undefined)[]): string {
  return `{${values.map((value) => (value === undefined ? "NULL" : quoted(value))).join(",")}}`;
}

function quoted(text: string): string {
  return `"${text.replaceAll(/["\\]/g, String.raw`\$&`)}"`;
}
