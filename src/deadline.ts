/**
 * Waits for a promise, but no longer than a deadline. The timer is cleared either way; how the promise settles
 * after the deadline is ignored, also if it rejects.
 *
 * @param timeoutMs How long to wait, in milliseconds.
 * @param onTimeout Called at the deadline: what it returns takes the promise's place, what it throws rejects.
 * @throws Whatever the promise rejects with, or `onTimeout` throws.
 * @example
 * await withDeadline(server.stop(), 10_000, () => log("Connections are left"));
 */
export function withDeadline<Value, Late>(
  promise: Promise<Value>,
  timeoutMs: number,
  onTimeout: () => Late,
): Promise<Value | Late> {
  const timeout = Promise.withResolvers<void>();
  const timer = setTimeout(timeout.resolve, timeoutMs);
  return Promise.race([promise, timeout.promise.then(onTimeout)]).finally(() => clearTimeout(timer));
}
