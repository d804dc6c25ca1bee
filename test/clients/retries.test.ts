import {
  afterEach,
  beforeEach,
  describe,
  expect,
  mock,
  setDefaultTimeout,
  spyOn,
  test,
} from "bun:test";
import { join } from "node:path";

import { memoryStore } from "../../src/database/memory.ts";
import { ERRORS, PlantStoreError } from "../../src/errors.ts";
import { ERROR_NUMBERS, fetchWithRetries, int64 } from "../../src/http/client.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "../../src/plant/plant.ts";
import { testApp } from "../support/app.ts";
import { startBrokenGateway } from "../support/broken_gateway.ts";
import { bearer, CLOSED_PORT } from "../support/client.ts";
import { fern, ivy, jsonOf, returned } from "../support/plants.ts";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../support/program.ts";
import { startStrangers, STRANGERS, WHOLE } from "../support/strangers.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** How long the code waited, in milliseconds. */
let waits: number[] = [];
beforeEach(() => {
  waits = [];
  // Half of what a wait may be at most.
  spyOn(Math, "random").mockReturnValue(0.5);
  const { setTimeout } = globalThis;

  const immediately = (run: () => void, ms = 0) => {
    // One of minutes is the web framework's own.
    if (ms > 100_000) return setTimeout(run, ms);
    waits.push(ms);
    return setImmediate(run);
  };

  spyOn(globalThis, "setTimeout").mockImplementation(immediately as unknown as typeof setTimeout);
});
afterEach(() => mock.restore());

function send(url: string, plant = fern(), signal?: AbortSignal): Promise<Response> {
  return fetchWithRetries(`${url}/plants`, {
    method: "POST",
    headers: { ...bearer(), "content-type": "application/json" },
    body: jsonOf(plant),
    ...(signal && { signal }),
  });
}

/** The app over a store that sets no timer, and first cannot take plants. */
function appAfter(refusals: number) {
  const store = memoryStore();
  let requests = 0;

  const add = async (plant: NewPlant) => {
    if (requests++ < refusals) throw new PlantStoreError("storage_unavailable");
    const [outcome] = await store.add([plant], { timeoutMs: 1000 });
    return outcome === "conflict" ? outcome : "added";
  };

  return { fetch: testApp({ plants: { add } }).fetch, requests: () => requests };
}

/** Serves such an app, with how many requests came. */
function serveAfter(refusals: number) {
  const { fetch, requests } = appAfter(refusals);
  const server = Bun.serve({ port: 0, fetch });
  return {
    url: server.url.origin,
    requests,
    [Symbol.dispose]: () => void server.stop(true),
  };
}

test.each([
  ["waits as long as Retry-After says, and longer each time", 3, 200, [1100, 1200, 1400]],
  ["gives up after eight attempts", 100, 503, [1100, 1200, 1400, 1800, 2600, 4200, 6000]],
])("fetchWithRetries() %s", async (_what, refusals, status, expectedWaits) => {
  using server = serveAfter(refusals);
  expect((await send(server.url)).status).toBe(status);
  expect({ requests: server.requests(), waits }).toEqual({
    requests: waits.length + 1,
    waits: expectedWaits,
  });
});

test("fetchWithRetries() does not retry a plant that is refused with 409", async () => {
  using server = serveAfter(0);
  await send(server.url);
  const response = await send(server.url, ivy());
  expect({ status: response.status, body: await response.json() }).toEqual({
    status: 409,
    body: { error: 4091, message: "`id` is taken by a different plant; choose another id" },
  });
  expect({ requests: server.requests(), waits }).toEqual({ requests: 2, waits: [] });
});

test("fetchWithRetries() gives up after eight attempts, with the last error", async () => {
  await expect(send(`http://127.0.0.1:${CLOSED_PORT}`)).rejects.toBeInstanceOf(TypeError);
  expect(waits).toEqual([100, 200, 400, 800, 1600, 3200, 5000]);
});

test("fetchWithRetries() sends again after half a response, a gateway's page, and a redirect", async () => {
  using server = serveAfter(0);
  using gateway = startBrokenGateway(server.url);
  const response = await send(gateway.url);
  expect({ status: response.status, body: await response.json() }).toEqual({
    status: 200,
    body: returned(fern()),
  });
  expect({ requests: server.requests(), waits }).toEqual({
    requests: 2,
    waits: [100, 200, 400, 800],
  });
});

describe.each(STRANGERS.map((stranger, index) => ({ ...stranger, index })))(
  "fetchWithRetries() takes no answer for the server's: $status of $who",
  ({ index, status, type, location }) => {
    test("and sends the plant again", async () => {
      using strangers = startStrangers(appAfter(0).fetch);
      const url = strangers.once(index);
      const response = await send(url, WHOLE);
      expect({ status: response.status, body: await response.json() }).toEqual({
        status: 200,
        body: returned(WHOLE),
      });
      expect({ requests: strangers.requests(url), waits }).toEqual({ requests: 2, waits: [100] });
    });

    test("and names it in the end", async () => {
      using strangers = startStrangers(() => new Response());
      const url = strangers.always(index);
      const answer = [
        `status ${status}`,
        type ?? "no Content-Type",
        ...(location === undefined ? [] : [`Location: ${location}`]),
      ];
      await expect(send(url, WHOLE)).rejects.toThrow(
        new Error(
          `Cannot tell if the plant is stored: the response is not the Plant Store's (${answer.join(", ")})`,
        ),
      );
      expect(strangers.requests(url)).toBe(8);
    });
  },
);

test.each([
  ["60", 60_000],
  ["0", 0],
  ["-1", 0],
  ["1.5", 0],
  ["0x10", 0],
  ["1e3", 0],
  ["Infinity", 0],
  ["soon", 0],
  [new Date(4e12).toUTCString(), 0],
])("fetchWithRetries() waits for a Retry-After of %j for %d ms", async (retryAfter, wait) => {
  const gateway = { who: "a gateway", status: 429, retryAfter };
  using strangers = startStrangers(appAfter(0).fetch, [gateway]);
  expect((await send(strangers.once(0))).status).toBe(200);
  expect(waits).toEqual([100 + wait]);
});

test.each([
  ["61", "61"],
  ["3600", "3600"],
  ["9".repeat(400), "Infinity"],
])("fetchWithRetries() ends at a Retry-After of %s", async (retryAfter, seconds) => {
  const gateway = { who: "a gateway", status: 503, type: "text/html", retryAfter };
  using strangers = startStrangers(() => new Response(), [gateway]);
  const url = strangers.always(0);
  await expect(send(url)).rejects.toThrow(
    new Error(
      `Cannot tell if the plant is stored: the response asks to wait ${seconds} s, more than 60 (status 503, text/html)`,
    ),
  );
  expect({ requests: strangers.requests(url), waits }).toEqual({ requests: 1, waits: [] });
});

describe("fetchWithRetries() hands Bun's own options on to each attempt:", () => {
  const init = {
    method: "POST",
    headers: { ...bearer(), "content-type": "application/json" },
    body: jsonOf(fern()),
  };

  const listen = (options: object) => Bun.serve({ ...options, fetch: appAfter(1).fetch });

  test("proxy", async () => {
    using proxy = listen({ port: 0 });
    const options = { ...init, proxy: proxy.url.href };

    expect((await fetchWithRetries("http://192.0.2.1/plants", options)).status).toBe(200);
  });

  test("unix", async () => {
    using directory = emptyDirectory();
    const unix = directory.at("socket");
    using server = listen({ unix });
    const options = { ...init, unix };

    expect((await fetchWithRetries("http://192.0.2.1/plants", options)).status).toBe(200);
    expect(server.pendingRequests).toBe(0);
  });

  test("tls", async () => {
    const file = (name: string) => Bun.file(join(ROOT, "test/support/tls", name));
    const ca = file("localhost.crt");
    using server = listen({ port: 0, tls: { cert: ca, key: file("localhost.key") } });
    const options = { ...init, tls: { ca } };

    const response = await fetchWithRetries(`https://localhost:${server.port}/plants`, options);
    expect(response.status).toBe(200);
  });
});

test("fetchWithRetries() ends with its caller's signal", async () => {
  const sent = send(`http://127.0.0.1:${CLOSED_PORT}`, undefined, AbortSignal.abort());
  await expect(sent).rejects.toMatchObject({ name: "AbortError" });
  expect(waits).toEqual([]);
});

test("fetchWithRetries() ends with its caller's signal while it waits, and sends no more", async () => {
  let requests = 0;
  using server = Bun.serve({
    port: 0,
    fetch() {
      requests++;
      return new Response(null, { status: 503 });
    },
  });

  const controller = new AbortController();
  const reason = new Error("the gardener left");
  let hasWaited = false;

  const abortFirst = (run: () => void) => {
    queueMicrotask(() => controller.abort(reason));
    afterTurns(100, () => {
      hasWaited = true;
      run();
    });
  };

  spyOn(globalThis, "setTimeout").mockImplementation(abortFirst as unknown as typeof setTimeout);

  const sent = send(server.url.origin, undefined, controller.signal);
  const outcome = await sent.catch((error: unknown) => ({ error, hasWaited }));
  expect(outcome).toEqual({ error: reason, hasWaited: false });
  expect(requests).toBe(1);
});

/** Runs a function after so many turns of the event loop. */
function afterTurns(count: number, run: () => void): void {
  setImmediate(() => (count === 1 ? run() : afterTurns(count - 1, run)));
}

test("fetchWithRetries() takes an answer that has a field of a later version", async () => {
  const later = { who: "", status: 200, type: "application/json" };
  const body = JSON.stringify({ ...returned(WHOLE), later: true });
  using strangers = startStrangers(() => new Response(), [{ ...later, body }]);
  expect(await (await send(strangers.always(0), WHOLE)).text()).toBe(body);
});

test.each(["GET", "PUT", "DELETE"])("fetchWithRetries() refuses %s at once", async (method) => {
  const sent = fetchWithRetries(`http://127.0.0.1:${CLOSED_PORT}/plants`, { method });
  const message = `Cannot send ${method}: fetchWithRetries() is for POST /plants`;
  await expect(sent).rejects.toThrow(new TypeError(message));
  expect(waits).toEqual([]);
});

test.each(["any", "timeout"] as const)(
  "fetchWithRetries() says at once that a runtime has no AbortSignal.%s",
  async (name) => {
    const { [name]: method } = AbortSignal;
    using stack = new DisposableStack();
    stack.defer(() => void Object.assign(AbortSignal, { [name]: method }));
    Object.assign(AbortSignal, { [name]: undefined });

    await expect(send(`http://127.0.0.1:${CLOSED_PORT}`)).rejects.toThrow(
      new Error(`Cannot send with retries: this runtime has no AbortSignal.${name}`),
    );
    expect(waits).toEqual([]);
  },
);

test("ERROR_NUMBERS has the number of each cause", () => {
  const numbers = Object.entries(ERRORS).map(([code, { error }]) => [code, error]);
  expect<unknown>(Object.entries(ERROR_NUMBERS)).toEqual(numbers);
});

test("int64() writes every int64, and refuses what is none", () => {
  for (const id of [INT64_MIN, -1n, 0n, 2n ** 53n + 1n, INT64_MAX])
    expect(JSON.stringify(int64(id))).toBe(String(id));

  for (const id of [INT64_MIN - 1n, INT64_MAX + 1n, 2n ** 64n])
    expect(() => int64(id)).toThrow(
      new RangeError(`Cannot use the id ${id}: expected -2^63 to 2^63 - 1`),
    );

  for (const id of [2 ** 53 + 2, 1.5, "1", null, undefined] as unknown[] as bigint[])
    expect(() => int64(id)).toThrow(
      new TypeError(`Cannot use the id ${String(id)}: expected a bigint, such as 1n`),
    );
});

test("int64() says that a runtime has no JSON.rawJSON", () => {
  const { rawJSON } = JSON as { rawJSON?: unknown };
  using stack = new DisposableStack();
  stack.defer(() => void Object.assign(JSON, { rawJSON }));
  Object.assign(JSON, { rawJSON: undefined });

  expect(() => int64(1n)).toThrow(
    new Error("Cannot write the id 1: this runtime has no JSON.rawJSON"),
  );
});

test.each<[string, () => BodyInit, string]>([
  ["a text", () => '{"id":9223372036854775807,"x":"🌿"}', '{"id":9223372036854775807,"x":"🌿"}'],
  ["bytes", () => new TextEncoder().encode("\ufeff\0\r\n"), "\ufeff\0\r\n"],
  ["a stream", () => new Blob(["one", "two"]).stream(), "onetwo"],
])("fetchWithRetries() sends the same bytes each time: %s", async (_what, bodyOf, text) => {
  const bodies: string[] = [];
  using server = Bun.serve({
    port: 0,
    async fetch(request) {
      const count = bodies.push((await request.bytes()).toHex());
      const refusal = { error: 4001, message: "the body must be valid JSON" };
      return Response.json(refusal, { status: count < 3 ? 503 : 400 });
    },
  });

  await fetchWithRetries(server.url, { method: "POST", body: bodyOf() });
  const bytes = new TextEncoder().encode(text).toHex();
  expect(bodies).toEqual([bytes, bytes, bytes]);
});
