import { expect, test } from "bun:test";
import { readError, readPlant } from "../support/responses.ts";
import { NOT_JSON } from "../support/cases.ts";
import { postPlant, testApp } from "../support/app.ts";
import { streamOf } from "../support/stream.ts";

const FERN = '{"id": 1, "name": "Fern"}';
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
  ["media type", { "content-type": "text/plain" }, 4151],
  ["Content-Length over the limit", { "content-length": String(LIMIT + 1) }, 4131],
])("a %s is refused before a byte is read", async (_what, headers, error) => {
  const { stream, progress } = endless();
  expect(await readError(await smallApp().fetch(postPlant(stream, headers)))).toMatchObject({ error });
  expect(progress.chunks).toBe(0);
});

// Size

test.each([
  {},
  { "content-length": String(LIMIT + 1) },
  { "content-length": "1" },
  { "content-length": "0" },
  { "content-length": "10" },
  { "content-length": "10", "transfer-encoding": "chunked" },
])("a body of a byte more than the limit is 413 and closes, with the headers %j", async (headers) => {
  const response = await smallApp().fetch(postPlant(FERN.padEnd(LIMIT + 1), headers));
  expect(response.headers.get("connection")).toBe("close");
  const message = expect.stringContaining(`${LIMIT} bytes`);
  expect(await readError(response)).toEqual({ status: 413, error: 4131, message });
});

test("the limit counts bytes, not characters", async () => {
  const umlauts = `{"id": 1, "name": "${"ü".repeat(LIMIT / 2)}"}`;
  expect(umlauts.length).toBeLessThan(LIMIT);
  expect(await readError(await smallApp().fetch(postPlant(umlauts)))).toMatchObject({ status: 413, error: 4131 });
});

test.each([null, "-1", "x", "1e1", "0x10", "NaN", "", "9000, 9000", "10, 10"])(
  "a Content-Length of %j does not switch off the limit: what comes is counted, up to it",
  async (length) => {
    const { stream, progress } = endless();
    const response = await smallApp().fetch(postPlant(stream, { "content-length": length }));
    expect(await readError(response)).toMatchObject({ status: 413, error: 4131 });
    // A chunk has a tenth of the limit; one more may have been asked for ahead.
    expect(progress.chunks).toBeLessThanOrEqual(12);
  },
);

test.each(["9000, 9000", "x", "", "1e9", String(LIMIT + 1)])(
  "a refused request with a Content-Length of %j closes its connection: its body may be large",
  async (length) => {
    const response = await smallApp().fetch(postPlant(FERN, { "content-length": length, authorization: null }));
    expect([response.status, response.headers.get("connection")]).toEqual([401, "close"]);
  },
);

test("a chunked body that was read keeps its connection", async () => {
  const response = await testApp().fetch(postPlant(FERN, { "transfer-encoding": "chunked" }));
  expect([response.status, response.headers.get("connection")]).toEqual([200, null]);
});

// Chunks

test("a body in chunks is put together, also where a character is cut", async () => {
  const bytes = new TextEncoder().encode('{"id": 1, "name": "🌱"}');
  for (let cut = 0; cut <= bytes.length; cut++) {
    const stream = streamOf([bytes.slice(0, cut), new Uint8Array(0), bytes.slice(cut)]);
    const response = await testApp().fetch(postPlant(stream));
    expect(await readPlant(response)).toEqual({ status: 200, body: { name: "🌱" } });
  }
});

test("a body in many chunks lets the event loop turn before its end", async () => {
  let [chunks, chunksAtTurn] = [0, Number.NaN];
  setTimeout(() => (chunksAtTurn = chunks));
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.enqueue(Uint8Array.of(0x20));
      if (++chunks === LIMIT) controller.close();
    },
  });
  expect(await readError(await smallApp().fetch(postPlant(body)))).toMatchObject({ error: 4001 });
  expect(chunksAtTurn).toBeLessThan(100);
});

test("a body in many chunks lets the event loop turn ever less often", async () => {
  let [chunks, turns, isRead] = [0, 0, false];
  const count = () => void setTimeout(() => !isRead && (turns++, count()));
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.enqueue(Uint8Array.of(0x20));
      if (++chunks === 2_000) controller.close();
    },
  });
  count();
  expect(await readError(await testApp().fetch(postPlant(body)))).toMatchObject({ error: 4001 });
  isRead = true;
  // One for every 16 chunks would be 125.
  expect(turns).toBeLessThan(40);
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
  const other = await app.fetch(postPlant({ id: 1, name: "Ivy" }));
  expect(await readPlant(other)).toMatchObject({ status: 200 });
});

// UTF-8 and JSON

test("a body that is not UTF-8 is refused, and nothing is replaced", async () => {
  const message = expect.stringContaining("UTF-8");
  const body = Buffer.from('{"id": 1, "name": "Bl\u00fcte"}', "latin1");
  expect(await readError(await testApp().fetch(postPlant(body)))).toEqual({ status: 400, error: 4001, message });
});

test("the refusal of a body that is not JSON does not quote it", async () => {
  for (const [, body] of NOT_JSON) {
    const { message } = await readError(await testApp().fetch(postPlant(body)));
    expect(message).not.toContain("Fern");
    expect(message).toMatch(/\bbody\b/);
  }
});

test("no body is 400", async () => {
  const { headers, method, url } = postPlant(FERN);
  for (const request of [
    new Request(url, { method, headers }),
    postPlant(""),
    postPlant("", { "content-length": "0" }),
    postPlant(streamOf([])),
    postPlant(streamOf([new Uint8Array(0)])),
  ]) {
    expect(await readError(await testApp().fetch(request))).toEqual({
      status: 400,
      error: 4001,
      message: "the body must not be empty",
    });
  }
});

test.each([
  ["{not json", "breaks at column 2"],
  ['{"id": 1, "name": "Fern",}', "breaks at column 26"],
  ['{"id": 1, "name": "Fern"', "ends too early, at column 25"],
  [" ", "ends too early, at column 2"],
  ['{\r\n  "id": 1,\r\n  name: "Fern"\r\n}', "breaks at line 3, column 3"],
  ['{\n  "name": "🌱", }\n', "breaks at line 2, column 17"],
  ['\uFEFF{"id": 01}', "breaks at column 9"],
])("the refusal of %j says where it stops being JSON", async (body, place) => {
  expect(await readError(await testApp().fetch(postPlant(body)))).toEqual({
    status: 400,
    error: 4001,
    message: `the body must be valid JSON; it ${place}`,
  });
});

function smallApp() {
  return testApp({ maxBodyBytes: LIMIT });
}

/** The whole of this, and then the connection breaks. */
function* broken(...chunks: Uint8Array[]) {
  yield* chunks;
  throw new Error("connection reset by 10.0.0.1");
}

/** A body that ends, but a hundred times past the limit. */
function endless() {
  const progress = { chunks: 0 };
  const stream = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (progress.chunks++ === 1_000) controller.close();
        else controller.enqueue(new Uint8Array(LIMIT / 10));
      },
    },
    { highWaterMark: 0 },
  );
  return { stream, progress };
}
