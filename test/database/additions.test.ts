import { expect, test } from "bun:test";

import { compareLedger, ledgerEntry } from "../../src/database/additions.ts";
import { DatabaseError } from "../../src/database/database.ts";

/** What drizzle-kit writes for SQLite and for PostgreSQL, and what it adds. */
const ONLY_ADD: [what: string, sql: string, adds: string[]][] = [
  ["a column that may be NULL", "ALTER TABLE `plants` ADD `light` text;", ["plants.light"]],
  ["one of PostgreSQL", 'ALTER TABLE "plants" ADD COLUMN "light" text;', ["plants.light"]],
  [
    "a column with a default",
    "ALTER TABLE `plants` ADD `light` text DEFAULT 'shade' NOT NULL;",
    ["plants.light"],
  ],
  [
    "several columns",
    "ALTER TABLE `tokens` ADD `used_at` integer;--> statement-breakpoint\nALTER TABLE `tokens` ADD `by` text;",
    ["tokens.used_at", "tokens.by"],
  ],
  [
    "a table, with what is in it",
    'CREATE TABLE "pots" (\n\t"id" integer PRIMARY KEY NOT NULL,\n\t"name" text NOT NULL,\n\tCONSTRAINT "pots_name" UNIQUE("name")\n);\n--> statement-breakpoint\nCREATE UNIQUE INDEX "of_pots" ON "pots" USING btree ("name");--> statement-breakpoint\nINSERT INTO "pots" VALUES (1, \'a\');--> statement-breakpoint\nALTER TABLE "pots" ADD COLUMN "size" integer;',
    ["pots"],
  ],
  ["a strict table", "CREATE TABLE `pots` (\n\t`id` integer\n) STRICT;\n", ["pots"]],
  ["a column without quotes", "alter table plants add light text;", ["plants.light"]],
  ["an index", "CREATE INDEX `by_name` ON `plants` (`name`);", ["by_name"]],
  [
    "a column, with a comment",
    "-- How much light it needs.\nALTER TABLE `plants` ADD `light` text;\n",
    ["plants.light"],
  ],
];

/** What a version that does not know a migration leaves out. */
const additionsOf = (entry: string) => compareLedger([], [[1, entry]]).additions;

test.each(ONLY_ADD)("a migration with %s only adds", (_what, sql, adds) => {
  const entry = ledgerEntry("0003_more", sql);
  expect(entry).toStartWith("0003_more");
  expect(additionsOf(entry)).toEqual(adds);
});

test("of two later migrations of one time, both count", () => {
  const entries = [
    [1, "3f"],
    [1, "4a adds plants.light"],
  ] as const;
  expect(() => compareLedger([], entries)).toThrow("it was made by a newer plant-store");
});

const DO_MORE: [what: string, sql: string][] = [
  ["a column that every row must have", "ALTER TABLE `plants` ADD `light` text NOT NULL;"],
  ["a serial column", 'ALTER TABLE "plants" ADD COLUMN "n" serial NOT NULL;'],
  ["a unique column", "ALTER TABLE `plants` ADD `light` text UNIQUE;"],
  ["a column with a condition", "ALTER TABLE `plants` ADD `light` text CHECK (`light` <> '');"],
  [
    "a column that refers to a table",
    "ALTER TABLE `plants` ADD `pot` integer REFERENCES pots(id);",
  ],
  ["a computed column", "ALTER TABLE `plants` ADD `n` integer GENERATED ALWAYS AS (1 / `id`);"],
  ["a unique index", "CREATE UNIQUE INDEX `one_name` ON `plants` (`name`);"],
  ["a constraint", 'ALTER TABLE "plants" ADD CONSTRAINT "one" UNIQUE("name");'],
  [
    "a table that refers to an old one",
    "CREATE TABLE `pots` (`plant` integer REFERENCES plants(id));",
  ],
  ["a renamed column", "ALTER TABLE `plants` RENAME COLUMN `tag` TO `kind`;"],
  ["a removed column", "ALTER TABLE `plants` DROP COLUMN `tag`;"],
  ["a changed row", "UPDATE `plants` SET `tag` = 'x';"],
  ["a row of an old table", "INSERT INTO `plants` VALUES (1, 'x', NULL);"],
  ["a table made anew", "PRAGMA foreign_keys=OFF;--> statement-breakpoint\nDROP TABLE `plants`;"],
  ["a trigger", "CREATE TRIGGER t AFTER INSERT ON plants BEGIN SELECT 1; END;"],
  [
    "an addition, and more in its line",
    "ALTER TABLE `plants` ADD `light` text; DROP TABLE `tokens`;",
  ],
  ["a default with a semicolon", "ALTER TABLE `plants` ADD `light` text DEFAULT 'a;b';"],
];

test.each(DO_MORE)("a migration with %s does more than to add", (_what, sql) => {
  for (const migration of [sql, `ALTER TABLE \`plants\` ADD \`kind\` text;\n${sql}`])
    expect(() => additionsOf(ledgerEntry("0003_more", migration))).toThrow(
      new DatabaseError("it was made by a newer plant-store"),
    );
});
