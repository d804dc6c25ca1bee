const { setTimeout, setImmediate, clearTimeout } = globalThis;
const { now: realNow } = performance;

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

/**
 * Time that passes only when nothing else is left to do, to the end of the scope. All timers and
 * `performance.now()` follow it, so an hour takes as long as what happens in it.
 */
export function virtualTime() {
  let now = 0;
  let jumpedMs = 0;
  let lastId = 0;
  const timers = new Map<number, Timer>();

  function schedule(run: (...args: unknown[]) => void, delayMs = 0, ...args: unknown[]): number {
    timers.set(++lastId, { at: now + Math.max(0, delayMs), run: () => run(...args) });
    return lastId;
  }

  function runNext(): void {
    // Of those that are due at one time, the first that was set.
    let next: readonly [id: number, Timer] | undefined;
    for (const timer of timers) if (next === undefined || timer[1].at < next[1].at) next = timer;
    if (next === undefined)
      throw new Error("Nothing is left to happen, and something is waited for");

    const [id, { at, run }] = next;
    timers.delete(id);
    now = Math.max(now, at);
    run();
  }

  Object.assign(globalThis, {
    setTimeout: schedule,
    setImmediate: (run: () => void) => schedule(run),
    clearTimeout: (id: number) => void timers.delete(id),
  });
  performance.now = () => now;

  return {
    now: () => now,
    sleep: (delayMs: number) =>
      new Promise<void>((resolve) => void schedule(() => resolve(), delayMs)),
    /** Time passes without anybody noticing: a machine was suspended. */
    jump(byMs: number): void {
      now += byMs;
      jumpedMs += byMs;
    },

    /** How much of the time passed like that, in milliseconds. */
    jumpedMs: () => jumpedMs,
    /** Lets time pass until a promise is settled. */
    async until<Result>(promise: Promise<Result>): Promise<Result> {
      let isSettled = false;
      const settle = () => void (isSettled = true);
      promise.then(settle, settle);

      for (;;) {
        // Whatever follows from what happened so far.
        await new Promise<void>((resolve) => void setImmediate(resolve));
        if (isSettled) return promise;
        runNext();
      }
    },

    [Symbol.dispose]() {
      Object.assign(globalThis, { setTimeout, setImmediate, clearTimeout });
      performance.now = realNow;
    },
  };
}

/** See {@linkcode virtualTime}. */
export type VirtualTime = ReturnType<typeof virtualTime>;
