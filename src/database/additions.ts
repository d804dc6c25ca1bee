// What a migration adds, if it does nothing else: then versions from before it may go on using the database.
import type { OnWarning } from "./adapter.ts";
import { DatabaseError } from "./database.ts";

/**
 * What a migration of drizzle-kit adds, if it does nothing else: tables, columns that may be NULL or have a default,
 * and indexes that are not unique. Without any of them an older version reads and writes as before.
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

/** A text that holds a semicolon is cut too, and does not count as an addition then. */
function statementsOf(sql: string): readonly string[] {
  const code = sql.replaceAll("--> statement-breakpoint", ";").replaceAll(/^\s*--.*$/gm, "");
  return code
    .split(";")
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "");
}

/** One that refers to another table may keep rows of that from being changed. */
const NEW_TABLE = /^CREATE TABLE [`"]?(\w+)[`"]? \((?!.*\bREFERENCES\b)/is;
const NEW_COLUMN = /^ALTER TABLE [`"]?(\w+)[`"]? ADD (?:COLUMN )?[`"]?(\w+)[`"]? (.*)$/is;
const NEW_INDEX = /^CREATE INDEX [`"]?(\w+)[`"]? ON [`"]?(\w+)[`"]? /i;
/** What does no harm to a table that the same migration creates. */
const OF_TABLE = /^(?:INSERT INTO|CREATE UNIQUE INDEX [`"]?\w+[`"]? ON) [`"]?(\w+)[`"]? /i;

/** Whether an older version may insert a row without a column. */
function isOptional(definition: string): boolean {
  if (/\b(?:UNIQUE|PRIMARY|CHECK|REFERENCES|GENERATED)\b/i.test(definition)) return false;
  return !/\bNOT NULL\b/i.test(definition) || /\bDEFAULT\b/i.test(definition);
}

/** It stands behind the name: for a column of its own, each ledger that exists would have to be changed. */
const ADDS = " adds ";

/**
 * The entry of a migration in the ledger, the table of applied migrations. An older version knows nothing of the
 * migration but this.
 */
export function ledgerEntry(name: string, sql: string): string {
  const additions = additionsIn(sql);
  return additions === undefined ? name : name + ADDS + additions.join(", ");
}

/**
 * Compares the ledger of a database with the migrations that this version knows. Of either, the other may lack one that
 * is not the last: a fork takes it with a later version.
 *
 * @param entries Each with the time when its migration was written: two may have the same.
 * @returns The missing migrations, and what later versions have added, which this one leaves out.
 * @throws {DatabaseError} If a later version may have done more than to add: it may store more of a plant than this one
 *   knows.
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

/** Warns of what this version leaves out, if there is anything. */
export function warnOfAdditions(additions: readonly string[], onWarning: OnWarning): void {
  if (additions.length > 0) onWarning(LEFT_OUT, { reason: additions.join(", ") });
}

const LEFT_OUT = "The database has additions of a newer plant-store, which this version ignores";
