/** Runs a task when there is a permit for it, and settles as the task does. */
export type Semaphore = <Result>(task: () => Promise<Result>) => Promise<Result>;

/**
 * Limits how many tasks run at once. The others wait in order (FIFO); the caller bounds how many may wait.
 *
 * @param permits How many tasks may run at once.
 */
export function semaphore(permits: number): Semaphore {
  const waiting: (() => void)[] = [];
  let free = permits;
  return async (task) => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await task();
    } finally {
      const next = waiting.shift();
      if (next === undefined) free++;
      else next();
    }
  };
}
