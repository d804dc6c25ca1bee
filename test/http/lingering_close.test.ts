import { expect, jest, setDefaultTimeout, test } from "bun:test";

import { postPlant, testApp } from "../support/app.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { promisesSettled } from "../support/promises_settled.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What may come of a refused request: its response, whose body ends when the connection may close. */
function refused(body: ReadableStream<Uint8Array>): Promise<Response> {
  const headers = { authorization: null, "transfer-encoding": "chunked" };
  return Promise.resolve(app.fetch(postPlant(body, headers)));
}

const app = testApp();

/** A body that brings pieces of this size for as long as it is read. */
function endless(size: number) {
  const read = { bytes: 0 };
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        read.bytes += size;
        controller.enqueue(new Uint8Array(size));
      },
    },
    { highWaterMark: 0 },
  );
  return { body, read };
}

/** A body of which nothing arrives until it ends. */
function silent() {
  const body = Promise.withResolvers<ReadableStreamDefaultController<Uint8Array>>();
  return { body: new ReadableStream<Uint8Array>({ start: body.resolve }), end: body.promise };
}

test.each([
  [1, 257],
  [1_460, 16_000_140],
  [16_000, 16_000_000],
  [1_000_000, 16_000_000],
])("of a refused body in pieces of %i bytes, %i bytes are read", async (size, most) => {
  const { body, read } = endless(size);

  const response = await refused(body);
  expect([response.status, response.headers.get("connection")]).toEqual([401, "close"]);
  expect(await response.json()).toMatchObject({ error: 4011 });
  expect(read.bytes).toBe(most);
});

test("a refusal ends with its body", async () => {
  const { body, end } = silent();
  const text = (await refused(body)).text();
  expect(Bun.peek.status(text)).toBe("pending");

  (await end).close();
  expect(JSON.parse(await text)).toMatchObject({ error: 4011 });
});

test("a refusal ends after a turn of the event loop, even if its body is left at once", async () => {
  let hasTurned = false;
  setImmediate(() => (hasTurned = true));

  await (await refused(endless(1).body)).text();
  expect(hasTurned).toBe(true);
});

test("a refusal whose body does not end in five seconds ends without it", async () => {
  jest.useFakeTimers();
  try {
    const text = (await refused(silent().body)).text();
    await promisesSettled();
    jest.advanceTimersByTime(4_999);
    expect(jest.getTimerCount()).toBe(1);
    jest.advanceTimersByTime(1);
    expect(JSON.parse(await text)).toMatchObject({ error: 4011 });
  } finally {
    jest.useRealTimers();
  }
});
