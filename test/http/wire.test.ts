import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { eventLoopTurn } from "../../src/async/timers.ts";
import { PLANT_FIELDS } from "../../src/plant/plant.ts";
import { fuzzCases, sendFuzzCases } from "../faults/fuzz.ts";
import { TOKEN } from "../support/client.ts";
import { installPackage } from "../support/installed_package.ts";
import {
  connect,
  getBytes,
  postBytes,
  printedSeed,
  verdictOf,
  wireBytes,
  type WireResponse,
} from "../support/load.ts";
import { MODULE_RUNTIMES, type ModuleRuntime, skipsRuntimes } from "../support/module_runtimes.ts";
import { fern, ivy, returned, TEXT } from "../support/plants.ts";
import { exitCodeOf, ROOT, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { readError, readPlant } from "../support/responses.ts";
import { scaled } from "../support/scale.ts";
import { REFUSED, WIRE_CASES, type WireCase } from "./wire_cases.ts";

// What is on the wire, whatever serves the app: one suite, on every runtime.
setDefaultTimeout(TEST_TIMEOUT_MS);

/** What serves the app: their HTTP parsers differ. */
interface Runtime {
  readonly name: string;
  readonly kind: ModuleRuntime["kind"];
  /** Whether it obeys the signals of `test/runtimes/app.ts`; the program itself does not. */
  readonly isTestApp: boolean;
  /** Whether it is missing here. Says so; with `CI` set it throws. */
  readonly skips: () => boolean;
  /**
   * Gives what starts a server that has stored nothing, and lets the stack dispose of what all of
   * them stand on.
   */
  readonly prepare: (stack: AsyncDisposableStack) => Promise<() => ReturnType<typeof startServer>>;
}

const env = { AUTH_TOKENS: TOKEN };

/** The program runs on Bun only. What it responds on PostgreSQL, the tests of same bytes hold. */
const RUNTIMES: readonly Runtime[] = [
  ...MODULE_RUNTIMES.map(testApp),
  {
    name: "the program",
    kind: "bun",
    isTestApp: false,
    skips: () => false,
    prepare: async () => () => startServer({ env }),
  },
];

/** The app over a store in memory. On one runtime it is the app of the package, as it is built. */
function testApp({ name, run, kind }: ModuleRuntime): Runtime {
  const isPacked = name === "Node 26";
  return {
    name: isPacked ? `${name} with the packed module` : name,
    kind,
    isTestApp: true,
    skips: () => kind !== "bun" && skipsRuntimes(`the wire suite on ${name}`),
    async prepare(stack) {
      const options = { program: [...run, join(ROOT, `test/runtimes/serve_${kind}.ts`)] };
      if (!isPacked) return () => startServer(options);
      const { path } = stack.use(await installPackage());
      const module = pathToFileURL(join(path, "node_modules/plant-store/dist/module/mod.js"));
      return () => startServer({ ...options, env: { MODULE: module.href } });
    },
  };
}

/** What the suite is about. */
interface Subject {
  readonly runtime: Runtime;
  /** The server, once the suite has begun. */
  readonly server: () => Awaited<ReturnType<typeof startServer>>;
  /** Starts a server for one test alone. */
  readonly start: () => ReturnType<typeof startServer>;
}

for (const runtime of RUNTIMES) {
  describe.skipIf(runtime.skips())(`on ${runtime.name}`, () => {
    const stack = new AsyncDisposableStack();
    let start: Subject["start"];
    let server: ReturnType<Subject["server"]>;
    const subject: Subject = { runtime, server: () => server, start: () => start() };

    beforeAll(async () => {
      start = await runtime.prepare(stack);
      server = stack.use(await start());
    });
    afterAll(() => stack.disposeAsync());
    onConnections(subject);
    pipelines(subject);
    aborts(subject);
    oneConnection(subject);
    unreadBodies(subject);
    hostileRequests(subject);
    if (!runtime.isTestApp) return hugeBodies(subject);
    lostResponses(subject);
    drains(subject);
  });
}

// One request on each connection

/** How many requests are on their way at once. */
const CONNECTIONS = 16;

function onConnections({ runtime, server }: Subject): void {
  const isOwn = (wireCase: WireCase) => runtime.isTestApp || !wireCase.isForTestApp;
  const groups = Object.entries(WIRE_CASES).map(
    ([group, cases]) => [group, cases.filter(isOwn)] as const,
  );
  const send = async ({ before, bytes }: WireCase) => {
    const connection = await connect(server().url);
    if (before !== undefined)
      expect(await connection.request(wireBytes(before))).toMatchObject({ status: 200 });
    const response = await connection.request(bytes);
    connection.close("reset");
    return response;
  };

  test.each(groups.filter(([, own]) => own.length > 0))(
    "each request gets its response: %s",
    async (_group, own) => {
      const verdict = async (wireCase: WireCase) =>
        verdictOn(await send(wireCase), wireCase).catch(String);
      const seen: string[] = [];
      const unsent = own.entries();
      const sendUnsent = async () => {
        for (const [i, wireCase] of unsent)
          seen[i] = `${wireCase.what}: ${await verdict(wireCase)}`;
      };
      await Promise.all(Array.from({ length: CONNECTIONS }, sendUnsent));
      const expected = own.map(
        ({ what, verdict, elsewhere }) => `${what}: ${elsewhere?.[runtime.kind] ?? verdict}`,
      );

      expect(seen).toEqual(expected);
    },
  );
}

/** The verdict of a response in which all that goes with it is right. */
async function verdictOn(
  response: WireResponse | undefined,
  { request }: WireCase,
): Promise<string> {
  if (response === undefined) return REFUSED;
  const { status, body } = response;
  const isHead = request?.method === "HEAD";
  if (!isHead && body === "" && (status === 505 || Math.floor(status / 100) === 4)) return REFUSED;
  await expectHeaders(response, { isHead });
  if (isHead) return String(status);

  if (status === 200 && request?.method === "POST") {
    const sent = JSON.parse(new TextDecoder().decode(request.body));
    const fields = PLANT_FIELDS.map((field) => [field, sent[field]]);
    expect(JSON.parse(body)).toEqual(Object.fromEntries(fields));
    expect(response.headers.get("connection")).not.toBe("close");
  }

  return verdictOf(response);
}

/** What the message to each cause names, and what the cause adds to the headers; by its number. */
const CAUSES: Readonly<
  Record<string, readonly [named: string | RegExp, headers?: Readonly<Record<string, unknown>>]>
> = {
  4003: [/Host|Trailer/, { connection: "close" }],
  4011: ["Authorization", { "www-authenticate": 'Bearer realm="plant-store"' }],
  4012: ["not valid", { "www-authenticate": 'Bearer realm="plant-store", error="invalid_token"' }],
  4031: [
    'the required scope "write"',
    {
      "www-authenticate": 'Bearer realm="plant-store", error="insufficient_scope", scope="write"',
    },
  ],
  4041: ["POST /plants"],
  4051: ["`Allow`", { allow: expect.stringMatching(/^[A-Z]+(?:, [A-Z]+)*$/) }],
  4091: ["`id`"],
  // Deno adds its own.
  4131: [/65536 bytes|larger chunks/, { connection: expect.stringMatching(/^close(?:, close)?$/) }],
  5001: ["internal error; the plant may be stored, send it again"],
  5032: ["storage is unavailable", { "retry-after": "1" }],
  5033: ["shutting down", { "retry-after": "1", connection: "close" }],
};

async function expectHeaders(wire: WireResponse, { isHead = false } = {}): Promise<void> {
  expect(wire.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  expect(wire.headers.get("x-content-type-options")).toBe("nosniff");

  if (isHead) return expect(wire.body).toBe("");
  const response = new Response(wire.body, wire);
  if (wire.status === 200) return void (await readPlant(response));
  const { error, message } = await readError(response);
  const [named, headers = {}] = CAUSES[error] ?? [""];
  expect(message).toMatch(named);
  expect(Object.fromEntries(wire.headers)).toMatchObject(headers);
  // Of a store that throws.
  expect(JSON.stringify([...wire.headers, wire.body])).not.toContain("secret");
}

// One connection

function oneConnection({ runtime, server }: Subject): void {
  test("a connection carries many requests, even after refusals of bodies that are not read", async () => {
    const connection = await connect(server().url);
    for (const [bytes, verdict] of [
      [postBytes(fern({ id: 500n })), "200"],
      [
        postBytes(fern({ id: 500n, [TEXT]: "x".repeat(60_000) }), "wrong-token-0123456789"),
        "401/4012",
      ],
      [postBytes("{not json"), "400/4001"],
      [postBytes(ivy({ id: 500n })), "409/4091"],
      [postBytes("{}").replace("/plants", "/nowhere"), "404/4041"],
      [postBytes("{}").replace("POST", "PUT"), "405/4051"],
      [postBytes(fern({ id: 500n })), "200"],
      [getBytes("/livez"), "200"],
    ] as const) {
      const response = await connection.request(bytes);
      expect(response && verdictOf(response)).toBe(verdict);
      expect(response?.headers.get("connection")).not.toBe("close");
    }

    connection.close();
  });

  test("a response says how long it is; on Node it comes in chunks", async () => {
    const connection = await connect(server().url);
    const { headers } = (await connection.request(getBytes("/livez"))) ?? {
      headers: new Headers(),
    };
    expect([headers.get("content-length"), headers.get("transfer-encoding")]).toEqual(
      runtime.kind === "node" ? [null, "chunked"] : [String('{"status":"ok"}'.length), null],
    );

    connection.close();
  });

  test.each([
    ["GET", "/nowhere", [], "404"],
    ["DELETE", "/plants", [], "405"],
    // As proxies write it that take a body's framing away.
    ["DELETE", "/plants", ["Content-Length: 0"], "405"],
    ["OPTIONS", "/plants", [], "405"],
    ["HEAD", "/nowhere", [], "404"],
  ] as const)(
    "%s %s without a body ends the connection, so that nothing behind it is run (%j)",
    async (method, path, more, status) => {
      const connection = await connect(server().url);
      const lines = [`${method} ${path} HTTP/1.1`, "Host: localhost", ...more];
      const response = await connection.request(`${lines.join("\r\n")}\r\n\r\n`);
      expect([String(response?.status), response?.headers.get("connection")]).toEqual([
        status,
        "close",
      ]);
      await expectEnd(runtime, connection);
    },
  );

  // Bun takes what follows for bytes of a tunnel, for good. Others have no request for it.
  if (runtime.kind === "bun") {
    test.each(["plants.example:80", "/plants"])(
      "CONNECT %s ends the connection",
      async (target) => {
        for (const length of [[], ["Content-Length: 2", "", "{}"]]) {
          const connection = await connect(server().url);
          const lines = [`CONNECT ${target} HTTP/1.1`, "Host: localhost", ...length];
          const response = await connection.request(`${lines.join("\r\n")}\r\n\r\n`);
          expect([404, 405]).toContain(response?.status ?? 0);
          expect(response?.headers.get("connection")).toBe("close");
          await connection.closed;
        }
      },
    );
  }

  test.each(["/livez", "/readyz", "/plants", "/nowhere", "/metrics"])(
    "HEAD %s has the length of GET, and a Date",
    async (path) => {
      const connection = await connect(server().url);
      const get = await connection.request(getBytes(path));
      const other = await connect(server().url);
      const head = await other.request(getBytes(path).replace("GET", "HEAD"));
      expect(head?.status).toBe(get?.status ?? 0);

      const length = head?.headers.get("content-length") ?? null;
      if (length !== null) expect(length).toBe(String(Buffer.byteLength(get?.body ?? "")));
      expect(head?.headers.get("date")).toMatch(/ GMT$/);
      connection.close();
      other.close();
    },
  );

  test("a bad Host after a good one is refused, and ends the connection", async () => {
    const connection = await connect(server().url);
    expect(await connection.request(getBytes("/livez"))).toMatchObject({ status: 200 });
    const refused = await connection.request("GET /livez HTTP/1.1\r\nHost: localhost/\r\n\r\n");
    expect(refused && verdictOf(refused)).toBe("400/4003");
    await expectEnd(runtime, connection);
  });
}

/** `Deno.serve` sends `Connection: close`, and keeps the connection open all the same. */
async function expectEnd(
  { kind }: Runtime,
  connection: Awaited<ReturnType<typeof connect>>,
): Promise<void> {
  if (kind !== "deno") return await connection.closed;
  expect(await connection.request(getBytes("/livez"))).toMatchObject({ status: 200 });
  connection.close();
}

// Bodies that are not read to their end

const AUTHORIZATION = `Authorization: Bearer ${TOKEN}`;
const LARGE = "Content-Length: 1000000";
const TWICE = `${LARGE}\r\n${LARGE}`;
const CHUNKED = "Transfer-Encoding: chunked";

function unreadBodies({ runtime, server }: Subject): void {
  // Node's parser refuses two lengths.
  const doubled =
    runtime.kind === "node" ? [] : ([["401/4011", "POST /plants", TWICE, []]] as const);

  test.each([
    ...doubled,
    ["401/4011", "POST /plants", LARGE, []],
    ["401/4011", "POST /plants", CHUNKED, []],
    ["404/4041", "POST /nowhere", LARGE, []],
    ["405/4051", "PUT /plants", CHUNKED, []],
    ["413/4131", "POST /plants", LARGE, [AUTHORIZATION, "Content-Type: application/json"]],
    ["413/4131", "POST /plants", CHUNKED, [AUTHORIZATION, "Content-Type: application/json"]],
    ["415/4151", "POST /plants", CHUNKED, [AUTHORIZATION]],
  ])(
    "a %s to %s with %s ends its connection, but not before the body has ended",
    async (verdict, line, length, more) => {
      const connection = await connect(server().url);
      const lines = [`${line} HTTP/1.1`, "Host: localhost", length, ...more];
      const [size, rest] =
        length === CHUNKED
          ? ["11000\r\n", `${" ".repeat(0x800)}\r\n0\r\n\r\n`]
          : ["", " ".repeat(1_000_000 - 0x1_0800)];
      connection.send(`${lines.join("\r\n")}\r\n\r\n${size}${" ".repeat(0x1_0800)}`);

      const other = await connect(server().url);
      expect(await other.request(getBytes("/livez"))).toMatchObject({ status: 200 });
      expect(connection.isClosed()).toBe(false);
      other.close();

      const response = await connection.request(rest);
      expect(response && verdictOf(response)).toBe(verdict);
      expect(response?.headers.get("connection")).toStartWith("close");
      // Deno may keep it.
      if (runtime.kind === "deno") connection.close("reset");
      await connection.closed;
    },
  );

  test("a body of GET that is not read ends the connection", async () => {
    const connection = await connect(server().url);
    const response = await connection.request(
      `GET /livez HTTP/1.1\r\nHost: localhost\r\n${LARGE}\r\n\r\n `,
    );
    expect(response).toMatchObject({ status: 200 });
    expect(response?.headers.get("connection")).toStartWith("close");
    connection.close("reset");
  });
}

function hugeBodies({ server }: Subject): void {
  const lengths = [65_537, 1_048_577, 200_000_000, Number.MAX_SAFE_INTEGER];
  const refusals = [
    [[], 401, /^Bearer realm="plant-store"$/],
    [["Authorization: Bearer unknown"], 401, /error="invalid_token"$/],
    [[AUTHORIZATION, "Content-Type: application/json"], 413, /^$/],
  ] as const;

  test("a body of any announced length is refused by the app, after the credentials, and before more of it comes", async () => {
    const cases = lengths.flatMap((length) =>
      refusals.map(async ([more, status, challenge]) => {
        const head = ["POST /plants HTTP/1.1", "Host: localhost", `Content-Length: ${length}`];
        const connection = await connect(server().url);
        connection.send(`${[...head, ...more].join("\r\n")}\r\n\r\n{`);
        // Its head alone: its end waits for that of the body.
        const response = await connection.response("HEAD");
        expect(response?.status).toBe(status);
        expect(response?.headers.get("content-type")).toBe("application/json");
        expect(response?.headers.get("www-authenticate") ?? "").toMatch(challenge);
        connection.close("reset");
      }),
    );
    await Promise.all(cases);
  });

  test("a refusal arrives while its client still sends, and a client that sends without end is cut off", async () => {
    const connection = await connect(server().url);
    const head = ["POST /plants HTTP/1.1", "Host: localhost", CHUNKED];
    connection.send(`${head.join("\r\n")}\r\n\r\n`);
    expect(await connection.response("HEAD")).toMatchObject({ status: 401 });

    const chunk = `100000\r\n${" ".repeat(0x10_0000)}\r\n`;
    let sent = 0;
    while (!connection.isClosed()) {
      if (sent++ < 100) connection.send(chunk);
      await eventLoopTurn();
    }
  });
}

// Pipelining

function pipelines({ runtime, server }: Subject): void {
  const isBun = runtime.kind === "bun";
  const outcome = isBun
    ? "end the connection, and a re-send is safe"
    : "get their responses, in their order";

  test(`pipelined requests ${outcome}`, async () => {
    const plants = [510n, 511n, 512n].map((id) => fern({ id, [TEXT]: `plant ${id}` }));
    const connection = await connect(server().url);
    connection.send(plants.map((plant) => postBytes(plant)).join(""));
    if (isBun) expect(await connection.response()).toBeUndefined();

    const resent = await connect(server().url);
    for (const plant of plants) {
      const response = await (isBun ? resent.request(postBytes(plant)) : connection.response());
      expect(response).toMatchObject({ status: 200, body: JSON.stringify(returned(plant)) });
    }

    resent.close();
    connection.close();
  });
}

// Clients that go away

function aborts({ server }: Subject): void {
  test.each(["close", "reset"] as const)(
    "a client that goes away (%s) before the end stores nothing",
    async (how) => {
      const { url } = server();
      const ids = Array.from({ length: 30 }, (_, index) =>
        BigInt((how === "close" ? 520 : 560) + index),
      );
      const connections = await Promise.all(ids.map(() => connect(url)));
      connections.forEach((connection, index) => {
        const whole = postBytes(fern({ id: ids[index] ?? 0n }));
        const chunked = whole.replace(
          /Content-Length: \d+\r\n\r\n(.*)$/,
          `${CHUNKED}\r\n\r\n1f\r\n$1`,
        );

        // Within the head, within the body, and before the last chunk of a body that is a whole
        // plant already.
        connection.send([whole.slice(0, 60), whole.slice(0, -1), chunked][index % 3] ?? "");
      });

      const other = await connect(url);
      expect(await other.request(getBytes("/livez"))).toMatchObject({ status: 200 });

      for (const connection of connections) connection.close(how);
      // Were a plant stored, another one under its id would be refused.
      for (const id of ids)
        expect(await other.request(postBytes(ivy({ id })))).toMatchObject({ status: 200 });

      other.close();
    },
  );
}

// Hostile requests

/**
 * How long one may be, in bytes. A body of the limit in chunks of one byte is six times as long. It
 * takes Node 22 five seconds of CPU, and on a busy machine that looks like a hang. The fuzz sends
 * such bodies to the program, and each runtime gets chunks of one byte in a case of its own.
 */
const MAX_HOSTILE_BYTES = 100_000;

/** Making them takes longer than sending them: they are the same for each runtime. */
const HOSTILE = fuzzCases(printedSeed("hostile requests"))
  .filter(({ bytes }) => bytes.length <= MAX_HOSTILE_BYTES)
  .take(scaled(150, 2_000))
  .toArray();

function hostileRequests({ start }: Subject): void {
  test("requests of every kind get the response of the oracle", async () => {
    // On its own: these plants have ids of others.
    await using server = await start();
    const { unexpected } = await sendFuzzCases(server.url, HOSTILE.values());
    expect(unexpected).toEqual([]);
  });
}

// What a test tells the app to do

function lostResponses({ server }: Subject): void {
  test("a plant is stored even if its client goes away before the response, and can be sent again", async () => {
    const { url, child, stderr } = server();
    const held = postBytes(fern({ id: 600n, [TEXT]: "held" }));
    const connection = await connect(url);
    connection.send(held);
    await stderr.until(/holds 600\n/);
    connection.close("reset");

    const other = await connect(url);
    expect(await other.request(getBytes("/livez"))).toMatchObject({ status: 200 });

    const rival = other.request(postBytes(fern({ id: 600n, [TEXT]: "rival" })));
    child.kill("SIGHUP");
    expect(await rival).toMatchObject({ status: 409 });

    other.close();
  });
}

function drains({ runtime, start }: Subject): void {
  test("a drain refuses new requests with 503/5033, finishes those in flight, and ends", async () => {
    await using server = await start();
    const { url, child, stderr } = server;
    const inFlight = await connect(url);
    const idle = await connect(url);
    const halfSent = await connect(url);
    expect(await idle.request(getBytes("/livez"))).toMatchObject({ status: 200 });

    const plant = fern({ id: 620n, [TEXT]: "held" });
    const held = inFlight.request(postBytes(plant));
    await stderr.until(/holds 620\n/);
    const late = postBytes(fern({ id: 621n }));
    halfSent.send(late.slice(0, -5));
    child.kill("SIGUSR2");
    await stderr.until(/drains\n/);

    for (const refused of [await idle.request(late), await halfSent.request(late.slice(-5))]) {
      expect(refused && verdictOf(refused)).toBe("503/5033");
      if (refused !== undefined) await expectHeaders(refused);
    }

    child.kill("SIGHUP");
    expect(await held).toMatchObject({ status: 200, body: JSON.stringify(returned(plant)) });

    await expectEnd(runtime, idle);
    child.kill("SIGTERM");
    await inFlight.closed;
    expect(await exitCodeOf(child)).toBe(0);
  });
}
