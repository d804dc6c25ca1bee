import { PlantStoreError } from "./errors.ts";

/** How {@linkcode readiness} asks. */
export interface ReadinessOptions {
  /** How long a verdict is used again, in milliseconds: the path is public, and a probe costs an fsync. @default {500} */
  readonly freshMs?: number;
  /** How long one question waits for a probe, in milliseconds. @default {100} */
  readonly patienceMs?: number;
  /** From when on a probe without a response means that storage hangs, in milliseconds. @default {1_000} */
  readonly stuckMs?: number;
}

/**
 * Makes a cheap question of a costly one: whether a plant could be stored now. However often and by however many it is
 * asked, one probe runs at a time, and a probe that hangs holds up nobody.
 *
 * @param probe Resolves when a plant could be stored now.
 * @returns The question: throws a `PlantStoreError` when a plant could not be stored.
 */
export function readiness(probe: () => Promise<void>, options: ReadinessOptions = {}): () => Promise<void> {
  const { freshMs = 500, patienceMs = 100, stuckMs = 1_000 } = options;
  let running: Promise<void> | undefined;
  let started = Number.NEGATIVE_INFINITY;
  let finished = Number.NEGATIVE_INFINITY;
  let verdict: unknown = new PlantStoreError("storage_unavailable");

  function start(): Promise<void> {
    started = performance.now();
    const end = (found: unknown) => {
      verdict = found;
      finished = performance.now();
      running = undefined;
    };
    return probe().then(() => end(undefined), end);
  }

  return async () => {
    if (running === undefined && performance.now() - finished >= freshMs) running = start();
    if (running !== undefined) await atMost(running, patienceMs);
    if (running !== undefined && performance.now() - started >= stuckMs)
      throw new PlantStoreError("storage_unavailable");
    if (verdict !== undefined) throw verdict;
  };
}

async function atMost(promise: Promise<void>, milliseconds: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  await Promise.race([promise, timeout]);
  clearTimeout(timer);
}
