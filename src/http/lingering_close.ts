import { eventLoopTurn, withDeadline } from "../async/timers.ts";
import { readPieces } from "./body.ts";

/** How long the rest of a body is read at most, in milliseconds. */
const MAX_MS = 5_000;

/** How much of the rest is read at most, in bytes. */
const MAX_BYTES = 16_000_000;

/**
 * Makes a response that closes its connection reach a client that still sends its body. If the
 * server closed with bytes unread, the system would reset the connection, and the response could be
 * lost with it (RFC 9112, section 9.6). So the whole response leaves at once, and its end waits
 * until the body has ended.
 *
 * What remains: a client still loses the response if it reads nothing before it has sent more than
 * {@linkcode MAX_BYTES}, sends chunks of a few bytes, or sends for longer than {@linkcode MAX_MS}.
 *
 * @param text The body of the response. It is sent in chunks, because its end is to wait.
 */
export function lingeringClose(text: string, response: Response, { body }: Request): Response {
  if (body === null || body.locked) return response;

  const answer = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        await discard(body);
        // Bun accepts connections until none waits, and reads each at once. If it closed one meanwhile,
        // clients that come back as fast as they are refused would keep it from all others.
        await eventLoopTurn();
        controller.close();
      },
    },
    // Read the request only once somebody reads the response.
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

  // It fails if the client is gone, or its chunks are too small. After the deadline the connection
  // closes, which ends it.
  await withDeadline(
    reading.catch(() => {}),
    MAX_MS,
    () => {},
  );
}
