import { setDefaultTimeout, test } from "bun:test";

import { TOKEN } from "../support/client.ts";
import { LONG_TEST_TIMEOUT_MS, skipsProc } from "../support/program.ts";
import { expectNoGrowth } from "./large_bodies.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test.skipIf(skipsProc()).each([
  ["sent, with a token", TOKEN, "sent", "413/4131"],
  ["sent, without a token", "", "sent", "401/4011"],
  ["chunked, with a token", TOKEN, "chunked", "413/4131"],
  ["chunked, without a token", "", "chunked", "401/4011"],
] as const)("four bodies of 200 MB at once, %s, take no memory", (what, token, framing, verdict) =>
  expectNoGrowth(what, { env: { AUTH_TOKENS: TOKEN }, token, framing, verdict }),
);
