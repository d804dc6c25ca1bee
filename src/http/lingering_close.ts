import { eventLoopTurn, withDeadline } from "../async/timers.ts";
import { readPieces } from "./body.ts";

/** The maximum time of reading the rest of a body, in milliseconds. */
const MAX_MS = 5_000;

/** The maximum size of the rest that is read, in bytes. */
const MAX_BYTES = 16_000_000;

/**
 * Delivers a response with `Connection: close` to a client that is still sending its body. If the
 * server closed with bytes unread, the system would reset the connection, and the response could be
 * lost (RFC 9112, section 9.6). So the whole response is sent at once, but ends only after the
 * body.
 *
 * A client may still lose the response. That happens if it reads only after sending
 * {@linkcode MAX_BYTES}, sends tiny chunks, or sends for longer than {@linkcode MAX_MS}.
 *
 * @param text The body of the response. It is sent in chunks, so that its end can wait.
 */
export function lingeringClose(text: string, response: Response, { body }: Request): Response {
  if (body === null || body.locked) return response;

  const answer = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        await discard(body);
        // Bun accepts connections until none waits, and reads each at once. If it closed one
        // meanwhile, clients that reconnect at once after a refusal would starve all others.
        await eventLoopTurn();
        controller.close();
      },
    },
    // Start reading the request only when the response is read.
    { highWaterMark: 0 },
  );
  return new Response(answer, response);
}

/** Reads the rest of a body, within the limits above, and drops it. */
async function discard(body: ReadableStream<Uint8Array>): Promise<void> {
  let bytesLeft = MAX_BYTES;
  const reading = readPieces(body, ({ length }) => {
    bytesLeft -= length;
    return bytesLeft > 0;
  });

  // Reading fails if the client is gone or its chunks are too small. After the deadline, the
  // connection closes, which ends the read.
  await withDeadline(
    reading.catch(() => {}),
    MAX_MS,
    () => {},
  );
}
