import type { Mutation } from "../support/mutant.ts";

/** Commits without waiting for the disk: the negative control of the power loss. */
export const SYNCHRONOUS_NORMAL: readonly Mutation[] = [
  {
    file: "src/database/sqlite/connection.ts",
    from: 'set(client, "synchronous", "FULL", 2n);',
    to: 'set(client, "synchronous", "NORMAL", 1n);',
  },
];

/**
 * No bug: checkpoints come two hundred times as often, so that a short load has those that make writers wait (RESTART), too.
 */
export const FREQUENT_CHECKPOINTS: readonly Mutation[] = [
  { file: "src/database/sqlite/checkpoint.ts", from: "const PAGES = 4_000;", to: "const PAGES = 20;" },
];

/** Acknowledges a batch before the store has committed it. */
export const ACKNOWLEDGE_EARLY: readonly Mutation[] = [
  {
    file: "src/group_commit/batch.ts",
    from: "const outcomes = await store.add(",
    to: 'batch.forEach(({ resolve }) => resolve("added"));\n    const outcomes = await store.add(',
  },
];

/** Gives the first plant of a batch the outcome of the last one. */
export const SWAP_OUTCOMES: readonly Mutation[] = [
  {
    file: "src/group_commit/batch.ts",
    from: "settle(add, outcomes[index] as StoreOutcome)",
    to: "settle(add, outcomes.toReversed()[index] as StoreOutcome)",
  },
];

/** Lets a different plant take an id that is taken, as INSERT OR REPLACE does. */
export const REPLACE_ON_CONFLICT: readonly Mutation[] = [
  {
    file: "src/database/sqlite/plants.ts",
    from: ".onConflictDoNothing()",
    to: ".onConflictDoUpdate({ target: plants.id, set: { name: sql`excluded.name`, tag: sql`excluded.tag` } })",
  },
];

/** Limits a body by its Content-Length only. */
export const TRUST_CONTENT_LENGTH: readonly Mutation[] = [
  { file: "src/http/body.ts", from: "if (bytes.length > maxBytes) throw tooLarge(maxBytes);", to: "" },
  { file: "src/http/body.ts", from: "if (end > maxBytes) throw tooLarge(maxBytes);", to: "" },
];

/** Commits on after a failed fsync, without fail-stop. */
export const CONTINUE_AFTER_FAILED_FSYNC: readonly Mutation[] = [
  {
    file: "src/database/sqlite/errors.ts",
    from: "return /^SQLITE_IOERR_(?:DIR_)?FSYNC$/",
    to: "return /^never$/",
  },
];

/** Lets SQLite make the checkpoint, which hides a failed fsync. */
export const CHECKPOINT_INSIDE_SQLITE: readonly Mutation[] = [
  {
    file: "src/database/sqlite/connection.ts",
    from: 'set(client, "wal_autocheckpoint", 0, 0n);',
    to: 'set(client, "wal_autocheckpoint", 1000, 1000n);',
  },
  // The Worker's own fsync of the file would fail, too, and end the server.
  { file: "src/database/sqlite/worker.ts", from: "    checkpointWorker,\n", to: "" },
];

/** Takes what a server before left in the page cache for stored. */
export const TRUST_PAGE_CACHE: readonly Mutation[] = [
  {
    file: "src/database/sqlite/connection.ts",
    from: "if (existsSync(unsyncedMarker(client.filename))) resetUnsyncedWal(client);\n  else if (resetsWal) tryToResetWal(client, busyTimeoutMs);",
    to: "",
  },
];

/** Stops listening right at the signal, without a grace period. */
export const STOP_WITHOUT_GRACE: readonly Mutation[] = [
  {
    file: "src/server/shutdown.ts",
    from: "await untilQuiet(() => `${server.received()}:${commits.size()}`, timeoutMs / 4);",
    to: "",
  },
];

/** Writes on into files that were replaced or unlinked. */
export const IGNORE_REPLACED_FILE: readonly Mutation[] = [
  {
    file: "src/database/sqlite/files.ts",
    from: "if (inodeOf(file) !== inode) {",
    to: "if (file === inode) {",
  },
];

/** On PostgreSQL, commits without waiting for the disk, and does not say so: the negative control. */
export const SYNCHRONOUS_COMMIT_OFF: readonly Mutation[] = [
  { file: "src/database/postgres/connection.ts", from: "ELSE 'on' END", to: "ELSE 'off' END" },
  { file: "src/database/postgres/connection.ts", from: '  synchronous_commit: "off",\n', to: "" },
];

/** No bug: the check beside a server begins after an hour. */
export const LATE_CHECK: readonly Mutation[] = [
  { file: "src/database/sqlite/integrity.ts", from: "const DELAY_MS = 1_000;", to: "const DELAY_MS = 3_600_000;" },
];

/** No bug: the check beside a server rests for a minute or more after its first step. */
export const LONG_REST: readonly Mutation[] = [
  {
    file: "src/database/sqlite/reader_worker.ts",
    from: "const REST = { quiet: 4, writing: 99 };",
    to: "const REST = { quiet: 1_000_000, writing: 1_000_000 };",
  },
];
