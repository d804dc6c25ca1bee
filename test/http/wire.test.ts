import { expect, setDefaultTimeout, test } from "bun:test";
import { TOKEN } from "../support/client.ts";
import { type Connection, connect, getBytes, postBytes, verdictOf } from "../support/load.ts";
import { readError } from "../support/responses.ts";
import { emptyDirectory, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

// What only a socket shows: heads and framing as clients send them.
setDefaultTimeout(TEST_TIMEOUT_MS);

const AUTHORIZATION = `Authorization: Bearer ${TOKEN}`;
const JSON_TYPE = "Content-Type: application/json";

/** A connection to a fresh program. */
async function connected(): Promise<Connection & AsyncDisposable> {
  await using stack = new AsyncDisposableStack();
  const { path: cwd } = stack.use(emptyDirectory());
  const { url } = stack.use(await startServer({ cwd, env: { AUTH_TOKENS: TOKEN } }));
  const connection = await connect(url);
  const all = stack.move();
  return { ...connection, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

function head(requestLine: string, ...headers: readonly string[]): string {
  return [`${requestLine} HTTP/1.1`, ...headers, "\r\n"].join("\r\n");
}

function chunked(...chunks: readonly string[]): string {
  return [...chunks, ""].map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join("");
}

test.each(["a", "1", "[::1]", ""])(
  "a chunked body is read, whole or over the limit, under the host %j",
  async (host) => {
    await using connection = await connected();
    const post = head("POST /plants", `Host: ${host}`, AUTHORIZATION, JSON_TYPE, "Transfer-Encoding: chunked");
    const stored = await connection.request(post + chunked('{"id": 1, ', '"name": "Fern"}'));
    expect(stored).toMatchObject({ status: 200, body: '{"name":"Fern"}' });
    // Whoever reads it has to go by what has come: there is more to come, always.
    const refused = await connection.request(`${post}ffffff\r\n${" ".repeat(70_000)}`);
    expect(refused && verdictOf(refused)).toBe("413/4131");
  },
);

test("a chunked body of one byte a chunk is put together", async () => {
  await using connection = await connected();
  const name = "x".repeat(60_000);
  const post = head("POST /plants", "Host: localhost", AUTHORIZATION, JSON_TYPE, "Transfer-Encoding: chunked");
  const response = await connection.request(post + chunked(...`{"id": 1, "name": "${name}"}`));
  expect(response).toMatchObject({ status: 200, body: JSON.stringify({ name }) });
});

test.each([
  ["two of them", "Host: a\r\nHost: b"],
  ["two that are alike", "Host: a\r\nHost: a"],
  ["two that are empty", "Host:\r\nHost:"],
  ["a fragment", "Host: a#b"],
  ["a path", "Host: a/livez"],
  ["a query", "Host: a?b"],
  ["a user", "Host: a@b"],
  ["a space", "Host: a b"],
  ["a backslash", "Host: a\\b"],
  ["half an address", "Host: [::1"],
  ["a port that is none", "Host: a:b"],
  ["what is not ASCII", "Host: \u00e4"],
])("a Host with %s is 400, and closes (RFC 9112, section 3.2)", async (_what, host) => {
  await using connection = await connected();
  const response = await connection.request(head("GET /livez", host));
  expect(response?.headers.get("connection")).toBe("close");
  expect(response?.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  expect(await readError(new Response(response?.body, response))).toEqual({
    status: 400,
    error: 4003,
    message: "the request must have one Host header, with a valid host",
  });
  await connection.closed;
});

test.each(["a", "", "localhost:3000", "a.example.", "[::1]:3000", "127.0.0.1", "a_b", "x".repeat(10_000)])(
  "the Host %j is one like any other",
  async (host) => {
    await using connection = await connected();
    const good = head("GET /livez", `Host: ${host}`);
    expect(await connection.request(good)).toMatchObject({ status: 200 });
    expect(await connection.request(good)).toMatchObject({ status: 200 });
    // A good one before changes nothing.
    expect(await connection.request(head("GET /livez", `Host: ${host}/`))).toMatchObject({ status: 400 });
  },
);

test("HTTP/1.0 without a Host is answered", async () => {
  await using connection = await connected();
  expect(await connection.request("GET /livez HTTP/1.0\r\n\r\n")).toMatchObject({ status: 200 });
});

const LARGE = "Content-Length: 1000000000";
const CHUNKED = "Transfer-Encoding: chunked";

test.each([
  ["401", "POST /plants", LARGE, []],
  ["401", "POST /plants", CHUNKED, []],
  ["404", "POST /nowhere", LARGE, []],
  ["405", "PUT /plants", CHUNKED, []],
  ["413", "POST /plants", LARGE, [AUTHORIZATION, JSON_TYPE]],
  ["415", "POST /plants", CHUNKED, [AUTHORIZATION]],
  ["200", "GET /livez", LARGE, []],
])(
  "after a %s to %s with %s the rest of the body is not read: the connection ends",
  async (status, line, length, more) => {
    await using connection = await connected();
    const part = length === CHUNKED ? `10000\r\n${" ".repeat(0x1_0000)}` : " ".repeat(0x1_0000);
    const response = await connection.request(head(line, "Host: localhost", length, ...more) + part);
    expect([response?.status, response?.headers.get("connection")]).toEqual([Number(status), "close"]);
    await connection.closed;
  },
);

test("after a 401 to a body within the limit the connection goes on", async () => {
  await using connection = await connected();
  const refused = await connection.request(postBytes({ id: 1n, name: "x".repeat(60_000) }, "wrong-token-0123456789"));
  expect(refused && verdictOf(refused)).toBe("401/4012");
  expect(refused?.headers.has("connection")).toBe(false);
  expect(await connection.request(postBytes({ id: 1n, name: "Fern" }))).toMatchObject({ status: 200 });
  expect(await connection.request(getBytes("/livez"))).toMatchObject({ status: 200 });
});
