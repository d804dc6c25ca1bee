/**
 * Resolves after a turn of the event loop, in which signals, timers and sockets are served. `setImmediate` is not a web
 * standard, but Bun, Deno and Node have it; a timer of zero milliseconds takes one or more.
 */
export function eventLoopTurn(): Promise<void> {
  const { setImmediate = setTimeout } = globalThis as { readonly setImmediate?: (run: () => void) => unknown };
  return new Promise((resolve) => void setImmediate(resolve));
}
