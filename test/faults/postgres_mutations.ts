import type { Mutation } from "../support/mutant.ts";

const SESSION = "src/database/postgres/session.ts";

/** Commits without waiting for the disk, and does not say so: the negative control. */
export const SYNCHRONOUS_COMMIT_OFF: readonly Mutation[] = [
  { file: SESSION, from: "ELSE 'on' END", to: "ELSE 'off' END" },
  { file: SESSION, from: '  synchronous_commit: "off",\n', to: "" },
];
