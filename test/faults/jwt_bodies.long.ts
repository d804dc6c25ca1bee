import { setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { LONG_TEST_TIMEOUT_MS, skipsProc } from "../support/program.ts";
import { expectNoGrowth } from "./large_bodies.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

// While a JWT waits for the keys of its provider, nobody reads the body: Bun must not gather it.
const JWT = `${btoa('{"alg":"ES256"}').replace(/=+$/, "")}.e30.AAAA`;

test.skipIf(skipsProc()).each(["sent", "chunked"] as const)(
  "four bodies of 200 MB at once, %s, with a JWT whose provider is silent, take no memory",
  async (framing) => {
    using provider = silentProvider();
    const env = {
      AUTH_TOKENS: TOKEN,
      AUTH_JWKS_URL: provider.url,
      AUTH_ISSUER: "https://id.example.org",
      AUTH_AUDIENCE: "a",
    };
    const bodies = { env, token: JWT, framing, verdict: "503/5031" };
    await expectNoGrowth(`${framing}, with a JWT`, bodies);
  },
);

/** A provider of keys that takes connections and never responds. */
function silentProvider() {
  const server = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  return { url: `http://127.0.0.1:${server.port}/jwks`, [Symbol.dispose]: () => server.stop(true) };
}
