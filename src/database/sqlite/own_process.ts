// Information about this process.

/**
 * Whether the system may be asked about this process. False on Deno, which would ask its user for all
 * permissions. There, checks that need this are skipped.
 */
export const SEES_PROCESS = !("Deno" in globalThis);

/** Returns the uid of this process; `undefined` if it is unknown. */
export function ownUser(): number | undefined {
  return SEES_PROCESS ? process.getuid?.() : undefined;
}
