import type { Work } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import { revisionOfTokens } from "./tokens.ts";

/** How long tokens and pages may take, in milliseconds; a page that was given up ends on the server at the same time. */
export const WORK_TIMEOUT_MS = 10_000;
/** How long they wait for a connection of their own before they take one of the plants', in milliseconds. */
const CONNECT_TIMEOUT_MS = 1_000;
/**
 * How long reading whether tokens were changed may take, in milliseconds: a connection that hangs is to be left before a
 * revocation is unknown for long.
 */
const REVISION_TIMEOUT_MS = 1_000;

/** Runs work on lanes of its own; or on those of the plants, which may be all that the server takes connections for. */
export function withFallback(own: Lanes, plants: Lanes) {
  let waitsAgainAt = Number.NEGATIVE_INFINITY;
  return async <Result>(work: Work<Result>, timeoutMs = WORK_TIMEOUT_MS): Promise<Result> => {
    const mayWait = performance.now() >= waitsAgainAt;
    if (own.connected() > 0 || (mayWait && (await own.ready(CONNECT_TIMEOUT_MS)))) return own.run(work, timeoutMs);
    // What follows at once does not wait in vain a second time: a revocation is known within seconds.
    if (mayWait) waitsAgainAt = performance.now() + CONNECT_TIMEOUT_MS;
    // At its deadline the connection is closed, and it is one of the plants'.
    return plants.run(work, WORK_TIMEOUT_MS);
  };
}

/**
 * Reads whether tokens were changed. At the start, and where the database is only slow, there is more time: after each
 * failure twice as much, and after a success at least twice what it took.
 */
export function revisionReader(read: ReturnType<typeof withFallback>): () => Promise<string> {
  let timeoutMs = WORK_TIMEOUT_MS;
  return async () => {
    const [began, limitMs] = [performance.now(), timeoutMs];
    timeoutMs = Math.min(2 * limitMs, WORK_TIMEOUT_MS);
    const revision = await read(revisionOfTokens, limitMs);
    const enoughMs = Math.max(REVISION_TIMEOUT_MS, 2 * (performance.now() - began));
    timeoutMs = Math.min(enoughMs, WORK_TIMEOUT_MS);
    return revision;
  };
}
