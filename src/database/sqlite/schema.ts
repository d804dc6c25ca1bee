import { customType, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";

import type { FieldKind, NewPlant } from "../../plant/plant.ts";

/** SQLite's INTEGER as an exact `bigint`. Needs a connection with `safeIntegers`. */
const int64 = customType<{ data: bigint; driverData: bigint }>({ dataType: () => "integer" });

/** Milliseconds since 1970 UTC. */
const instant = (name: string) => integer(name, { mode: "timestamp_ms" });

const bytes = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => "blob" });

/** The plants. Clients choose the id. */
export const plants = sqliteTable("plants", {
  id: int64().primaryKey(),
  name: text().notNull(),
  tag: text(),
} satisfies Record<keyof NewPlant, unknown>);

/** Bearer tokens. Only the SHA-256 is stored, so a copy of the file gives no access. */
export const tokens = sqliteTable("tokens", {
  name: text().primaryKey(),
  digest: bytes().notNull().unique(),
  createdAt: instant("created_at").notNull(),
  expiresAt: instant("expires_at"),
  revokedAt: instant("revoked_at"),
  lastUsedAt: instant("last_used_at"),
  /** The scopes, separated by spaces (RFC 6749, section 3.3); `null` grants none. */
  scopes: text(),
});

/**
 * One row, which counts changes of the tokens. Servers read it to learn whether to reload the tokens.
 */
export const tokenRevision = sqliteTable("token_revision", {
  id: integer().primaryKey(),
  revision: integer().notNull(),
});

/** How the integrity check treats a kind of field. */
interface ColumnKind {
  /** Returns the SQL condition that a column has a value of the kind that can be read to its end. */
  isSound(column: string): string;
}

/** The kinds of fields. The schema above declares the type of each column. */
export const COLUMN_KINDS: Readonly<Record<FieldKind, ColumnKind>> = {
  text: { isSound: (column) => `typeof(${column}) = 'text' AND length(${column}) >= 0` },
};
