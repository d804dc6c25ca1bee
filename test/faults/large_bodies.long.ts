import { expect, setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { connect, verdictOf } from "../support/load.ts";
import { memoryOf } from "../support/proc.ts";
import { LONG_TEST_TIMEOUT_MS, skipsProc, startServer } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const BODY = Buffer.alloc(200_000_000, " ");
const MEGABYTE = 2 ** 20;

// While a JWT waits for the keys of its provider, nobody reads the body: Bun must not gather it.
const JWT = `${btoa('{"alg":"ES256"}').replace(/=+$/, "")}.e30.AAAA`;

const LENGTH = `Content-Length: ${BODY.length}\r\n\r\n`;
const CHUNK = `Transfer-Encoding: chunked\r\n\r\n${BODY.length.toString(16)}\r\n`;

test.skipIf(skipsProc()).each([
  ["announced, with a token", TOKEN, LENGTH, "", "413/4131"],
  ["announced, without a token", "", LENGTH, "", "401/4011"],
  ["sent, with a token", TOKEN, LENGTH, BODY, "413/4131"],
  ["sent, without a token", "", LENGTH, BODY, "401/4011"],
  ["sent, with a JWT whose provider is silent", JWT, LENGTH, BODY, "503/5031"],
  ["chunked, with a token", TOKEN, CHUNK, BODY, "413/4131"],
  ["chunked, without a token", "", CHUNK, BODY, "401/4011"],
  ["chunked, with a JWT whose provider is silent", JWT, CHUNK, BODY, "503/5031"],
] as const)(
  "four bodies of 200 MB at once, %s, take no memory",
  async (what, token, framing, body, verdict) => {
    using provider = silentProvider();
    const env = {
      AUTH_TOKENS: TOKEN,
      AUTH_JWKS_URL: provider.url,
      AUTH_ISSUER: "https://id.example.org",
      AUTH_AUDIENCE: "a",
    };
    await using server = await startServer({ env });
    await server.stderr.until(/Integrity check passed/);

    const before = memoryOf(server.child.pid).now;
    const verdicts = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const connection = await connect(server.url);
        connection.send(
          "POST /plants HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
        );
        if (token !== "") connection.send(`Authorization: Bearer ${token}\r\n`);
        connection.send(framing);
        connection.send(body);

        const response = await connection.response();
        connection.close("reset");

        // The system may drop a response that arrives while the client still sends.
        return response === undefined ? verdict : verdictOf(response);
      }),
    );

    expect(verdicts).toEqual(Array(4).fill(verdict));
    expect((await fetch(`${server.url}/livez`)).status).toBe(200);

    const growth = Math.round((memoryOf(server.child.pid).most - before) / MEGABYTE);
    console.log(`large bodies, ${what}: ${growth} MB more at most`);
    // Of each refused body 16 MB are read and discarded. It depends on the garbage collector how much
    // of that is there at once.
    expect(growth).toBeLessThan(100);
  },
);

/** A provider of keys that takes connections and never responds. */
function silentProvider() {
  const server = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  return { url: `http://127.0.0.1:${server.port}/jwks`, [Symbol.dispose]: () => server.stop(true) };
}
