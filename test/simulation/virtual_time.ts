const { setTimeout: realSetTimeout, clearTimeout: realClearTimeout, setImmediate: realSetImmediate } = globalThis;
const realNow = performance.now;

interface Due {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
}

/**
 * Time that passes when nothing else is left to do: until the end of the scope every timer and `performance.now()` of
 * this process is on it, so an hour takes as long as what happens in it.
 */
export function virtualTime() {
  let now = 0;
  let jumpedMs = 0;
  let order = 0;
  const timers = new Map<number, Due>();

  function schedule(run: (...args: unknown[]) => void, delayMs = 0, ...args: unknown[]): number {
    timers.set(++order, { at: now + Math.max(0, delayMs), order, run: () => run(...args) });
    return order;
  }

  function next(): Due | undefined {
    let first: Due | undefined;
    for (const due of timers.values()) if (first === undefined || due.at < first.at) first = due;
    return first;
  }

  Object.assign(globalThis, {
    setTimeout: schedule,
    setImmediate: (run: () => void) => schedule(run),
    clearTimeout: (id: number) => void timers.delete(id),
  });
  performance.now = () => now;
  return {
    now: () => now,
    sleep: (delayMs: number) => new Promise<void>((resolve) => void schedule(() => resolve(), delayMs)),
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
        await new Promise<void>((resolve) => void realSetImmediate(resolve));
        if (isSettled) return promise;
        const due = next();
        if (due === undefined) throw new Error("Nothing is left to happen, and something is waited for");
        timers.delete(due.order);
        now = Math.max(now, due.at);
        due.run();
      }
    },
    [Symbol.dispose]() {
      Object.assign(globalThis, {
        setTimeout: realSetTimeout,
        setImmediate: realSetImmediate,
        clearTimeout: realClearTimeout,
      });
      performance.now = realNow;
    },
  };
}

/** See {@linkcode virtualTime}. */
export type VirtualTime = ReturnType<typeof virtualTime>;
