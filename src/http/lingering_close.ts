import { eventLoopTurn, withDeadline } from "../async/timers.ts";

/** How long the rest of a body is read at most, in milliseconds. */
const MAX_MS = 5_000;

/** How long a client may pause within its body, in milliseconds. */
const MAX_PAUSE_MS = 1_000;

/** How much of the rest is read at most, in bytes. */
const MAX_BYTES = 16_000_000;

/** Maximum number of lingering connections. Beyond it, responses end immediately. */
const MAX_LINGERING = 256;

let lingering = 0;

/**
 * Makes a response that closes its connection reach a client that still sends its body. If the
 * server closed with bytes unread, the system would reset the connection, and the response could be
 * lost with it (RFC 9112, section 9.6). So the whole response leaves at once, and its end waits
 * until the body has ended.
 *
 * What remains: a client still loses the response if it reads nothing before it has sent a body of
 * more than {@linkcode MAX_BYTES}, or sends for longer than {@linkcode MAX_MS}.
 *
 * @param text The body of the response. It is sent in chunks, because its end is to wait.
 */
export function lingeringClose(text: string, response: Response, { body }: Request): Response {
  if (body === null || body.locked || lingering >= MAX_LINGERING) return response;

  const answer = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        lingering++;
        try {
          controller.enqueue(new TextEncoder().encode(text));
          await discard(body);
          controller.close();
        } finally {
          lingering--;
        }
      },
    },
    // A response that nobody reads keeps nothing.
    { highWaterMark: 0 },
  );
  return new Response(answer, response);
}

/** Reads the rest of a body, within the limits above, and drops it. */
async function discard(body: ReadableStream<Uint8Array>): Promise<void> {
  const reader = body.getReader();
  const deadline = performance.now() + MAX_MS;
  let bytesLeft = MAX_BYTES;

  try {
    while (bytesLeft > 0) {
      const timeoutMs = Math.min(MAX_PAUSE_MS, deadline - performance.now());
      const chunk = await withDeadline(reader.read(), timeoutMs, () => undefined);
      if (chunk === undefined || chunk.done) return;
      bytesLeft -= chunk.value.length;

      // A chunk may be a single byte. Bun joins what arrives meanwhile.
      await eventLoopTurn();
    }
  } catch {
    // The client is gone.
  } finally {
    reader.releaseLock();
  }
}
