/**
 * Waits for a promise, but no longer than until a signal is aborted. How the promise settles after that is ignored,
 * even if it rejects.
 *
 * @returns The promise's value, or `undefined` if the signal was aborted first.
 * @throws Whatever the promise rejects with.
 * @example
 * const opened = await withAbort(openDatabase(), signal);
 */
export async function withAbort<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value | undefined> {
  const aborted = Promise.withResolvers<undefined>();
  const onAbort = () => aborted.resolve(undefined);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort);
  try {
    return await Promise.race([aborted.promise, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
