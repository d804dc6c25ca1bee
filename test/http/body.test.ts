import { expect, test } from "bun:test";

import type { Observer } from "../../src/http/observer.ts";
import { postPlant, testApp } from "../support/app.ts";
import { fern, ivy, jsonOf } from "../support/plants.ts";
import { readError, readPlant } from "../support/responses.ts";
import { streamOf } from "../support/stream.ts";

const FERN = jsonOf(fern());
const LIMIT = 1_000;

// Media type

test.each([
  ["content-type", "text/plain", "application/json"],
  ["content-encoding", "gzip", "Content-Encoding"],
])("a refused %s is named", async (header, value, named) => {
  const message = expect.stringContaining(named);
  const response = await testApp().fetch(postPlant(FERN, { [header]: value }));
  expect(await readError(response)).toEqual({ status: 415, error: 4151, message });
});

test.each([
  ["bad token", { authorization: "Bearer unknown" }, 4012],
  ["media type", { "content-type": "text/plain" }, 4151],
  ["Content-Length over the limit", { "content-length": String(LIMIT + 1) }, 4131],
])("a %s is refused before a byte is read", async (_what, headers, error) => {
  const { stream, progress } = endless();
  const response = await smallApp().fetch(postPlant(stream, headers));
  expect(progress.chunks).toBe(0);
  expect(await readError(response)).toMatchObject({ error });
});

// Size

test.each([
  {},
  { "content-length": String(LIMIT + 1) },
  { "content-length": "1" },
  { "content-length": "0" },
  { "content-length": "10" },
  { "content-length": "10", "transfer-encoding": "chunked" },
])(
  "a body of a byte more than the limit is 413 and closes, with the headers %j",
  async (headers) => {
    const response = await smallApp().fetch(postPlant(FERN.padEnd(LIMIT + 1), headers));
    expect(response.headers.get("connection")).toBe("close");
    const message = expect.stringContaining(`${LIMIT} bytes`);
    expect(await readError(response)).toEqual({ status: 413, error: 4131, message });
  },
);

test.each([null, "-1", "x", "1e1", "0x10", "NaN", "", "9000, 9000", "10, 10"])(
  "a Content-Length of %j does not switch off the limit: the bytes that come are counted",
  async (length) => {
    const { stream, progress } = endless();
    const response = await smallApp().fetch(postPlant(stream, { "content-length": length }));
    // A chunk has a tenth of the limit; one more may have been asked for ahead.
    expect(progress.chunks).toBeLessThanOrEqual(12);
    expect(await readError(response)).toMatchObject({ status: 413, error: 4131 });
  },
);

test.each(["9000, 9000", "x", "", "1e9", String(LIMIT + 1)])(
  "a refused request with a Content-Length of %j closes its connection: its body may be large",
  async (length) => {
    const response = await smallApp().fetch(
      postPlant(FERN, { "content-length": length, authorization: null }),
    );
    expect([response.status, response.headers.get("connection")]).toEqual([401, "close"]);
  },
);

// Chunks

test.each([
  [1, 200, 4001],
  [1, 257, 4131],
  [100, 65_536, 4131],
  [1_460, 1_000_000, 4001],
])("of a body in chunks of %i bytes, with %i in all, comes %i", async (size, total, error) => {
  const response = await testApp({ maxBodyBytes: 1_000_000 }).fetch(
    postPlant(streamOf(blanks(size, total))),
  );
  expect(await readError(response)).toMatchObject({ error });
  expect(response.headers.get("connection")).toBe(error === 4131 ? "close" : null);
});

test("a body that breaks off is 400, and stores nothing", async () => {
  const app = testApp();
  const half = new TextEncoder().encode(FERN);

  for (const [stream, headers] of [
    [streamOf(broken()), {}],
    [streamOf(broken(half)), {}],
    [streamOf(broken(half)), { "content-length": "100" }],
  ] as const) {
    expect(await readError(await app.fetch(postPlant(stream, headers)))).toEqual({
      status: 400,
      error: 4001,
      message: "the body did not arrive completely",
    });
  }

  const other = await app.fetch(postPlant(ivy()));
  expect(await readPlant(other)).toMatchObject({ status: 200 });
});

// Bodies that the app cannot read

test.each<[what: string, read: (request: Request) => unknown]>([
  ["was read", (request) => request.json()],
  ["is being read by somebody else", (request) => request.body?.getReader()],
])(
  "a body that %s before the app got it is the program's fault, and it is told",
  async (_what, read) => {
    for (const body of [FERN, streamOf([new TextEncoder().encode(FERN)])]) {
      const causes: unknown[] = [];
      const onError: Observer["onError"] = ({ cause }) => void causes.push(cause);
      const app = testApp({ observer: { onError, onResponse() {} } });
      const length: Record<string, string> =
        typeof body === "string" ? { "content-length": String(FERN.length) } : {};
      const request = postPlant(body, length);
      await read(request);

      expect(await readError(await app.fetch(request))).toMatchObject({ status: 500, error: 5001 });
      const message = "the body was read before the app got it: mount it above body parsers";
      expect(causes).toEqual([expect.objectContaining({ message })]);
    }
  },
);

test("a framework's own limit of a body is 413", async () => {
  const tooLarge = Object.assign(new Error("Content-length exceeds limit"), { status: 413 });
  function* limited() {
    yield new TextEncoder().encode(FERN);
    throw tooLarge;
  }
  const response = await testApp().fetch(postPlant(streamOf(limited())));
  expect(await readError(response)).toMatchObject({ status: 413, error: 4131 });
});

test("a client that waits for a 100 that Bun does not send is told at once", async () => {
  const { stream, progress } = endless();
  const expecting = (expected: string, body: BodyInit) =>
    testApp().fetch(postPlant(body, { expect: expected }));
  const response = await expecting("100-Continue", stream);
  expect(progress.chunks).toBe(0);
  expect(response.headers.get("connection")).toBe("close");
  const message = expect.stringContaining("`Expect: 100-continue`");
  expect(await readError(response)).toEqual({ status: 400, error: 4003, message });
  expect((await expecting("100-continue", FERN)).status).toBe(200);
});

test("a body over the limit is 413 even if its client waits for a 100 that Bun does not send", async () => {
  const { stream, progress } = endless();
  const headers = { expect: "100-Continue", "content-length": String(LIMIT + 1) };
  const response = await smallApp().fetch(postPlant(stream, headers));
  expect([progress.chunks, response.headers.get("connection")]).toEqual([0, "close"]);
  const message = `the body must have at most ${LIMIT} bytes`;
  expect(await readError(response)).toEqual({ status: 413, error: 4131, message });
});

function smallApp() {
  return testApp({ maxBodyBytes: LIMIT });
}

/** So many bytes, in chunks of a size. */
function* blanks(size: number, total: number) {
  for (let left = total; left > 0; left -= size)
    yield new Uint8Array(Math.min(size, left)).fill(0x20);
}

/** The whole of this, and then the connection breaks. */
function* broken(...chunks: Uint8Array[]) {
  yield* chunks;
  throw new Error("connection reset by 10.0.0.1");
}

/** A body that ends, but far past the limit. */
function endless() {
  const progress = { chunks: 0 };
  const stream = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (progress.chunks++ === 50) controller.close();
        else controller.enqueue(new Uint8Array(LIMIT / 10));
      },
    },
    { highWaterMark: 0 },
  );

  return { stream, progress };
}
