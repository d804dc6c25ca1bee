import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { bearer, post, TOKEN, untilTokenIs } from "../support/client.ts";
import { table } from "../support/guides.ts";
import { fern, ivy, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import { freePort, runToEnd, start, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { shell } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// Logs

interface Line {
  readonly "@timestamp": string;
  readonly level: string;
  readonly message: string;
  readonly [property: string]: unknown;
}

/** The type of each field of the log, by the guide. */
const FIELD_TYPES = Object.fromEntries(
  table("Fields").flatMap(([names = "", type]) =>
    names.split(", ").map((name) => [name.replaceAll("`", ""), type]),
  ),
);

/** Runs a server, uses it, stops it, and gives what it logged: every field has its type. */
async function logOf(
  env: Record<string, string>,
  use: (url: string, cwd: string) => Promise<unknown>,
): Promise<Line[]> {
  await using server = await startServer({ env: { AUTH_TOKENS: TOKEN, ...env } });
  await use(server.url, server.cwd);
  expect(await server.stop()).toBe(0);
  const lines = (await server.stderr.end)
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);

  for (const line of lines) {
    if (line.message === "Configuration in force") continue;
    const types = Object.entries(line).map(([name, value]) => [name, typeInGuide(value)]);
    expect(FIELD_TYPES).toMatchObject(Object.fromEntries(types));
  }
  return lines.filter(({ message }) => !isFromSlowMachine(message));
}

function typeInGuide(value: unknown): string {
  if (Array.isArray(value)) return "list of texts";
  return typeof value === "string" ? "text" : typeof value;
}

test.concurrent(
  "a line of the log is a JSON object; of a first start, the third one is the configuration, without its secrets",
  async () => {
    const lines = await logOf({ QUEUE_LIMIT: "77" }, async () => {});
    for (const line of lines) expect(line["@timestamp"]).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);

    const levels = lines.map(({ level }) => level);
    expect(levels).toEqual(["INFO", "INFO", "INFO", "INFO", "INFO"]);

    expect(lines.map(({ message }) => message.split(" ")[0])).toEqual([
      "Initialized",
      "Plant",
      "Configuration",
      "Stopping:",
      "Stopped",
    ]);

    const database = { adapter: "sqlite", path: "plants.db" };
    expect(lines[2]).toMatchObject({ queueLimit: 77, authTokens: 1, database });
  },
);

test.concurrent(
  "refused credentials are logged with the reason and the response's request id",
  async () => {
    const ids: string[] = [];
    const lines = await logOf({}, async (url) => {
      const credentials = [
        { headers: { authorization: "Bearer plant_mistyped-0123456" } },
        { headers: { authorization: "Bearer unknown-token-0123" } },
        { headers: { authorization: "Basic dXNlcjpwYXNz" } },
        { token: null },
      ];

      for (const each of credentials) {
        let response = await post(url, undefined, each);
        // A slow machine may not have read the tokens in the last seconds.
        while (response.status === 503) response = await post(url, undefined, each);
        ids.push(response.headers.get("x-request-id") ?? "");
      }
    });

    const refused = lines.filter(({ message }) => message === "Refused credentials");
    expect(refused.map(({ reason }) => reason)).toEqual([
      "mistyped",
      "unknown",
      "another scheme",
      "none",
    ]);
    expect(refused.map(({ requestId }) => requestId)).toEqual(ids);
    expect(lines.filter(({ message }) => message === "Request completed")).toEqual([]);
  },
);

test.concurrent("a plant that cannot be stored is logged with the error as its cause", async () => {
  const env = { REQUEST_TIMEOUT_MS: "1000", ACCESS_LOG: "on" };
  const lines = await logOf(env, async (url, cwd) => {
    using other = new Database(join(cwd, "plants.db"));
    other.run("PRAGMA busy_timeout = 10000");
    other.run("BEGIN IMMEDIATE");
    expect((await post(url)).status).toBe(503);
  });

  expect(lines).toContainEqual(
    expect.objectContaining({
      message: "Storage unavailable",
      // The second one on a slow machine.
      cause: expect.objectContaining({
        message: expect.stringMatching(/: database is locked\b|^storage did not /),
      }),
    }),
  );
});

test.concurrent.each([
  ["off", ["127.0.0.1", "127.0.0.1", "127.0.0.1"]],
  ["Forwarded", ["127.0.0.1", "2001:db8::1", "127.0.0.1"]],
  ["X-Forwarded-For", ["192.0.2.1", "127.0.0.1", "127.0.0.1"]],
])(
  "with TRUST_PROXY=%s refused credentials are logged with the client's address",
  async (TRUST_PROXY, clients) => {
    const lines = await logOf({ TRUST_PROXY }, async (url) => {
      await post(url, undefined, {
        token: null,
        headers: { "x-forwarded-for": "198.51.100.7, 192.0.2.1" },
      });
      await post(url, undefined, { token: null, headers: { forwarded: 'for="[2001:db8::1]"' } });
      await post(url, undefined, { token: null });
    });

    const refused = lines.filter(({ message }) => message === "Refused credentials");
    expect(refused.map(({ client }) => client)).toEqual(clients);
  },
);

test.concurrent(
  "with LOG_FORMAT=pretty no line of a start is long, and settings at their defaults are left out",
  async () => {
    const env = { AUTH_TOKENS: TOKEN, LOG_FORMAT: "pretty", NO_COLOR: "1", QUEUE_LIMIT: "5000" };
    await using server = await startServer({ env });
    await server.stderr.until(/Integrity check passed.*\n/);
    expect(server.stderr.text()).not.toMatch(/"level"|undefined/);

    const lines = server.stderr.text().split("\n");
    expect(lines.filter((line) => line.length > 160)).toEqual([]);

    const configuration = lines.find((line) => line.includes("Configuration in force"));
    expect(configuration).toContain(
      'database.adapter="sqlite" database.path="plants.db" authTokens=1 queueLimit=5000',
    );
    expect(configuration).not.toMatch(/maxBodyBytes|logLevel/);
  },
);

test.concurrent("no log holds a token or a body, however they came", async () => {
  const lines = await logOf({ ACCESS_LOG: "on" }, async (url) => {
    await post(url, fern({ [TEXT]: "body-secret-0123456789" }));
    await post(url, fern({ [TEXT]: "body-secret-0123456789", [OPTIONAL_TEXT]: "other" }));
    await post(url, '{"body-secret-0123456789"');
    await post(url, { id: "body-secret-0123456789" });
    await post(url, undefined, { token: "unknown-secret-0123456789" });
    await post(url, undefined, { headers: { authorization: "unknown-secret-0123456789" } });
    await post(`${url}/path-secret-0123`);
    await fetch(`${url}/plants?access_token=query-secret-0123456789`, { method: "POST" });
  });

  expect(lines.filter(({ message }) => message === "Request completed")).toHaveLength(8);

  const text = JSON.stringify(lines);
  expect(text).not.toMatch(/(?:unknown|query|body|path)-secret/);
  expect(text).not.toContain(TOKEN);
});

test.each([
  ["is on a full disk", 'exec "$@" 2> /dev/full'],
  ["nobody reads any more", 'mkfifo log && { true < log & } && exec "$@" 2> log'],
])("a server whose log %s serves on, and SIGTERM exits 0", async (_what, script) => {
  // A server without a log cannot tell its port.
  const port = freePort();
  const env = { AUTH_TOKENS: TOKEN, ACCESS_LOG: "on" };
  await using server = start({ program: shell(script), args: ["--port", String(port)], env });
  let response: Response | undefined;

  while (response === undefined) {
    response = await post(`http://127.0.0.1:${port}`).catch(() => undefined);
    await Bun.sleep(20);
  }

  expect(response.status).toBe(200);
  expect(await server.stop()).toBe(0);
});

// Metrics

test.concurrent(
  "GET /metrics counts requests, plants, commits and the process, for a token in the header",
  async () => {
    await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
    expect((await post(server.url)).status).toBe(200);
    expect((await post(server.url)).status).toBe(200);
    expect((await post(server.url, ivy())).status).toBe(409);
    expect((await post(server.url, "{")).status).toBe(400);
    expect((await fetch(`${server.url}/made-up-by-a-client`)).status).toBe(404);

    const response = await fetch(`${server.url}/metrics`, { headers: bearer() });
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");

    const lines = (await response.text()).split("\n");
    for (const line of [
      'plant_store_requests_total{path="/plants",method="POST",status="200"} 2',
      'plant_store_requests_total{path="other",method="GET",status="404",error="4041"} 1',
      'plant_store_requests_total{path="/plants",method="POST",status="400",error="4001"} 1',
      'plant_store_request_duration_seconds_count{path="/plants",class="2xx"} 2',
      'plant_store_request_duration_seconds_count{path="/plants",class="4xx"} 2',
      'plant_store_plants_total{outcome="added"} 1',
      'plant_store_plants_total{outcome="present"} 1',
      'plant_store_plants_total{outcome="conflict"} 1',
      "plant_store_batch_plants_sum 3",
      "plant_store_commit_duration_seconds_count 3",
      "plant_store_queue_plants 0",
      "plant_store_checkpoint_failures_total 0",
    ]) {
      expect(lines).toContain(line);
    }

    const memory = lines.find((line) => line.startsWith("process_resident_memory_bytes "));
    expect(Number(memory?.split(" ")[1])).toBeGreaterThan(1e6);

    for (const path of ["/metrics", `/metrics?access_token=${TOKEN}`]) {
      expect((await fetch(server.url + path)).status).toBe(401);
    }
    expect(
      (await fetch(`${server.url}/metrics`, { method: "POST", headers: bearer() })).status,
    ).toBe(405);
  },
);

test.concurrent("GET /metrics says when the next of the tokens in use expires", async () => {
  await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
  const create = async (name: string, ...flags: string[]) => {
    const args = ["token", "create", name, ...flags];
    return (await runToEnd({ cwd: server.cwd, args })).stdout.trim();
  };
  const greenhouse = await create("greenhouse", "--expires", "3d");
  await create("unused", "--expires", "1d");

  await untilTokenIs(200, server.url, greenhouse);
  const response = await fetch(`${server.url}/metrics`, { headers: bearer() });
  const found = (await response.text()).match(/^plant_store_token_expiration_.*/gm);
  const [, seconds] =
    /^plant_store_token_expiration_timestamp_seconds\{token="greenhouse"\} (\S+)$/.exec(
      String(found),
    ) ?? [];
  const days = (Number(seconds) - Date.now() / 1_000) / 86_400;
  expect(days).toBeWithin(2, 3);
});

/**
 * Whether a server logs this message on a slow machine only, whatever a test does with it. There it
 * lives long enough for its check to begin, and waits for the processor.
 */
function isFromSlowMachine(message: string): boolean {
  return message.startsWith("Integrity check ") || message === "Event loop blocked";
}
