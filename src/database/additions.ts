// Detects migrations that only add to the schema: older versions can go on using such a database.
import type { OnWarning } from "./adapter.ts";
import { DatabaseError } from "./database.ts";

/**
 * Returns what a migration of drizzle-kit adds, if it does nothing else: tables, columns that are nullable or have a
 * default, and indexes that are not unique. An older version can ignore all of these.
 *
 * @returns The names, such as `plants.light`; `undefined` if a statement may do anything else.
 */
function additionsIn(sql: string): readonly string[] | undefined {
  const tables = new Set<string>();
  const names: string[] = [];

  for (const statement of statementsOf(sql)) {
    const [, table] = NEW_TABLE.exec(statement) ?? [];
    const [, of = "", column, definition = ""] = NEW_COLUMN.exec(statement) ?? [];
    const [, index, indexed = ""] = NEW_INDEX.exec(statement) ?? [];
    const [, filled = ""] = OF_TABLE.exec(statement) ?? [];

    if (table !== undefined) {
      tables.add(table);
      names.push(table);
    } else if (column !== undefined && isOptional(definition)) {
      if (!tables.has(of)) names.push(`${of}.${column}`);
    } else if (index !== undefined) {
      if (!tables.has(indexed)) names.push(index);
    } else if (!tables.has(filled)) return undefined;
  }

  return names.length > 0 ? names : undefined;
}

/** Splits a migration at semicolons, even in a string literal: such a statement does not count as an addition. */
function statementsOf(sql: string): readonly string[] {
  const code = sql.replaceAll("--> statement-breakpoint", ";").replaceAll(/^\s*--.*$/gm, "");
  return code
    .split(";")
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "");
}

/** Without REFERENCES: a foreign key could prevent changes to rows of the other table. */
const NEW_TABLE = /^CREATE TABLE [`"]?(\w+)[`"]? \((?!.*\bREFERENCES\b)/is;
const NEW_COLUMN = /^ALTER TABLE [`"]?(\w+)[`"]? ADD (?:COLUMN )?[`"]?(\w+)[`"]? (.*)$/is;
const NEW_INDEX = /^CREATE INDEX [`"]?(\w+)[`"]? ON [`"]?(\w+)[`"]? /i;
/** Statements that are harmless on a table that the same migration creates. */
const OF_TABLE = /^(?:INSERT INTO|CREATE UNIQUE INDEX [`"]?\w+[`"]? ON) [`"]?(\w+)[`"]? /i;

/** Reports whether an older version can insert a row without this column. */
function isOptional(definition: string): boolean {
  if (/\b(?:UNIQUE|PRIMARY|CHECK|REFERENCES|GENERATED)\b/i.test(definition)) return false;
  return !/\bNOT NULL\b/i.test(definition) || /\bDEFAULT\b/i.test(definition);
}

/** Separates the name from the additions. A separate column would need a change to every existing ledger. */
const ADDS = " adds ";

/**
 * Returns the entry of a migration for the ledger, the table of applied migrations. It is all that an older version
 * knows of the migration.
 */
export function ledgerEntry(name: string, sql: string): string {
  const additions = additionsIn(sql);
  return additions === undefined ? name : name + ADDS + additions.join(", ");
}

/**
 * Compares the ledger of a database with the migrations that this version knows. Either may lack some in the middle,
 * because a fork can merge a migration late.
 *
 * @param entries The entries, each with the time when its migration was written. Times need not be unique.
 * @returns The missing migrations, and the additions of later versions, which this version ignores.
 * @throws {DatabaseError} If a later version may have changed more: it may store fields that this version does not know.
 */
export function compareLedger<Migration extends { readonly when: number }>(
  migrations: readonly Migration[],
  entries: readonly (readonly [when: number, entry: string])[],
) {
  const known = new Set(migrations.map(({ when }) => when));
  const applied = new Set(entries.map(([when]) => when));
  const others = entries.filter(([when]) => !known.has(when));

  return {
    missing: migrations.filter(({ when }) => !applied.has(when)),
    additions: others.flatMap(([, entry]) => {
      const [, additions] = entry.split(ADDS);
      if (additions === undefined) throw new DatabaseError("it was made by a newer plant-store");
      return additions.split(", ");
    }),
  };
}

/** Warns of additions that this version ignores, if there are any. */
export function warnOfAdditions(additions: readonly string[], onWarning: OnWarning): void {
  if (additions.length > 0) onWarning(LEFT_OUT, { reason: additions.join(", ") });
}

const LEFT_OUT = "The database has additions of a newer plant-store, which this version ignores";
