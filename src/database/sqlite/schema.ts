import { customType, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** SQLite's INTEGER as `bigint`: every int64 exactly. Needs a connection with `safeIntegers`. */
const int64 = customType<{ data: bigint; driverData: bigint }>({ dataType: () => "integer" });

/** A moment, as milliseconds since 1970 UTC. */
const instant = customType<{ data: Date; driverData: bigint }>({
  dataType: () => "integer",
  toDriver: (moment) => BigInt(moment.getTime()),
  fromDriver: (milliseconds) => new Date(Number(milliseconds)),
});

const bytes = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => "blob" });

/** The plants, by the id their client chose. */
export const plants = sqliteTable("plants", {
  id: int64().primaryKey(),
  name: text().notNull(),
  tag: text(),
});

/** Bearer tokens: the SHA-256 only, so a copy of the file gives no access. */
export const tokens = sqliteTable("tokens", {
  name: text().primaryKey(),
  digest: bytes().notNull().unique(),
  createdAt: instant("created_at").notNull(),
  expiresAt: instant("expires_at"),
  revokedAt: instant("revoked_at"),
  lastUsedAt: instant("last_used_at"),
  /** What the bearer may do, separated by spaces (RFC 6749, section 3.3); `null` for everything, as before scopes. */
  scopes: text(),
});

/** One row: how often tokens were added, revoked or deleted. Servers read it to know whether to read the tokens. */
export const tokenRevision = sqliteTable("token_revision", {
  id: integer().primaryKey(),
  revision: integer().notNull(),
});
