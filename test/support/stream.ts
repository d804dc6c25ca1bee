/** A stream of these chunks, each when it is wanted; what they throw breaks it off. */
export function streamOf(
  chunks: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>,
): ReadableStream<Uint8Array> {
  const iterator =
    Symbol.asyncIterator in chunks ? chunks[Symbol.asyncIterator]() : chunks[Symbol.iterator]();

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done = false, value } = await iterator.next();
        if (done) controller.close();
        else
          controller.enqueue(typeof value === "string" ? new TextEncoder().encode(value) : value);
      },
    },
    { highWaterMark: 0 },
  );
}
