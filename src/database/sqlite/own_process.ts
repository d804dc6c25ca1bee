// What this process asks the system about itself.

/**
 * Whether to ask the system about this process. Deno asks its user first, for all permissions:
 * there the checks that need it are left out.
 */
export const SEES_PROCESS = !("Deno" in globalThis);

/** The user of this process; `undefined` if that cannot be known. */
export function ownUser(): number | undefined {
  return SEES_PROCESS ? process.getuid?.() : undefined;
}
