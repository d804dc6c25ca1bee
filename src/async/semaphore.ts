/**
 * Limits how many tasks run at once. The others wait in order (FIFO); the caller bounds how many
 * may wait.
 *
 * @param permits How many tasks may run at once.
 * @returns A function that runs a task when there is a permit for it, and settles as the task does.
 */
export function semaphore(permits: number) {
  const waiting: (() => void)[] = [];
  let free = permits;

  return async <Result>(task: () => Promise<Result>): Promise<Result> => {
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
