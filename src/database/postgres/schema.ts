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
