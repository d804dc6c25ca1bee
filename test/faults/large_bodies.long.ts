import { expect, setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { connect, verdictOf } from "../support/load.ts";
import { memoryOf } from "../support/proc.ts";
import { LONG_TEST_TIMEOUT_MS, skipsProc, startServer } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const BODY = Buffer.alloc(200_000_000, " ");
const MEGABYTE = 2 ** 20;

/** How a body is framed. */
const FRAMINGS = {
  sent: [`Content-Length: ${BODY.length}\r\n\r\n`, BODY],
  "sent with two lengths": [`Content-Length: ${BODY.length}\r\n`.repeat(2) + "\r\n", BODY],
  chunked: [`Transfer-Encoding: chunked\r\n\r\n${BODY.length.toString(16)}\r\n`, BODY],
} as const;

const JWT = `${btoa('{"alg":"ES256"}').replace(/=+$/, "")}.e30.AAAA`;

test.skipIf(skipsProc()).each([
  ["sent", "a token", TOKEN, "413/4131"],
  ["sent", "no token", "", "401/4011"],
  // While a JWT waits for the keys of its provider, nobody reads the body: Bun must not gather it.
  ["sent", "a JWT whose provider is silent", JWT, "503/5031"],
  ["sent with two lengths", "a token", TOKEN, "413/4131"],
  ["chunked", "a token", TOKEN, "413/4131"],
  ["chunked", "no token", "", "401/4011"],
  ["chunked", "a JWT whose provider is silent", JWT, "503/5031"],
] as const)(
  "four bodies of 200 MB at once, %s, with %s, take no memory",
  async (how, what, token, verdict) => {
    const [framing, body] = FRAMINGS[how];
    const silent = { hostname: "127.0.0.1", port: 0, socket: { data() {} } };
    using provider = Bun.listen(silent);
    const env = {
      AUTH_TOKENS: TOKEN,
      AUTH_JWKS_URL: `http://127.0.0.1:${provider.port}/jwks`,
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
    console.log(`large bodies, ${how}, with ${what}: ${growth} MB more at most`);
    // Of each refused body 16 MB are read and discarded. It depends on the garbage collector how much
    // of that is there at once.
    expect(growth).toBeLessThan(100);
  },
);
