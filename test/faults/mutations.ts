import type { Mutation } from "../support/mutant.ts";
import { OPTIONAL_TEXT, TEXT } from "../support/plants.ts";

/** One change to the source. */
const change = (file: string, from: string, to: string): readonly [Mutation] => [
  { file: `src/${file}`, from, to },
];

/** Commits without waiting for the disk: the negative control of the power loss. */
export const SYNCHRONOUS_NORMAL = change(
  "database/sqlite/wal.ts",
  'setPragma(connection, "synchronous", "FULL", 2);',
  'setPragma(connection, "synchronous", "NORMAL", 1);',
);

/**
 * No bug: checkpoints come 200 times as often, so that a short load has those that make writers
 * wait (RESTART).
 */
export const FREQUENT_CHECKPOINTS = change(
  "database/sqlite/checkpoint.ts",
  "const PAGES = 4_000;",
  "const PAGES = 20;",
);

/** Acknowledges a batch before the store has committed it. */
export const ACKNOWLEDGE_EARLY = change(
  "group_commit/group_commit.ts",
  "const outcomes = await store.add(",
  'batch.forEach(({ resolve }) => resolve("added"));\n    const outcomes = await store.add(',
);

/** Gives the first plant of a batch the outcome of the last one. */
export const SWAP_OUTCOMES = change(
  "group_commit/group_commit.ts",
  "settle(add, outcomes[index] as StoreOutcome)",
  "settle(add, outcomes.toReversed()[index] as StoreOutcome)",
);

const UPDATES = [TEXT, OPTIONAL_TEXT].map((field) => `${field}: sql\`excluded."${field}"\``);

/** Lets a different plant take an id that is taken, as INSERT OR REPLACE does. */
export const REPLACE_ON_CONFLICT = change(
  "database/sqlite/sqlite_database.ts",
  ".onConflictDoNothing({ target: plants.id })",
  `.onConflictDoUpdate({ target: plants.id, set: { ${UPDATES} } })`,
);

/** Lets SQLite make the checkpoint, which hides a failed fsync. */
export const CHECKPOINT_INSIDE_SQLITE = [
  ...change(
    "database/sqlite/wal.ts",
    'setPragma(connection, "wal_autocheckpoint", 0);',
    'setPragma(connection, "wal_autocheckpoint", 1000);',
  ),
  // The Worker's own fsync of the file would fail, too, and end the server.
  ...change(
    "database/sqlite/writer_worker.ts",
    '      background: { pass: () => call("pass"), close: () => (closed ??= close()), failed },\n',
    "",
  ),
];

/** No bug: the check beside a server takes steps in any file, and rests for a minute or more after the first. */
export const LONG_REST = [
  ...change(
    "database/sqlite/background_worker.ts",
    "const REST = { quiet: 4, writing: 99 };",
    "const REST = { quiet: 1_000_000, writing: 1_000_000 };",
  ),
  ...change(
    "database/sqlite/background_worker.ts",
    "const WHOLE_PAGES = 25_000;",
    "const WHOLE_PAGES = 0;",
  ),
];

/** Commits on PostgreSQL without waiting for the disk, and does not say so: the negative control. */
export const SYNCHRONOUS_COMMIT_OFF = [
  ...change("database/postgres/session.ts", "ELSE 'on' END", "ELSE 'off' END"),
  ...change("database/postgres/session.ts", '  synchronous_commit: "off",\n', ""),
];
