import { expect, setDefaultTimeout, test } from "bun:test";
import { post, TOKEN } from "../support/client.ts";
import { startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("CORS_ORIGINS lets a page of another origin post", async () => {
  const origin = "https://app.example.org";
  const env = { AUTH_TOKENS: TOKEN, CORS_ORIGINS: `${origin},http://localhost:5173` };
  await using server = await startServer({ env });
  const headers = { origin, "access-control-request-method": "POST" };
  const preflight = await fetch(`${server.url}/plants?x=1`, { method: "OPTIONS", headers });
  expect([preflight.status, preflight.headers.get("access-control-allow-headers")]).toEqual([
    204,
    "authorization, content-type, traceparent, tracestate, x-request-id",
  ]);
  const response = await post(server.url, undefined, { headers: { origin } });
  expect([response.status, response.headers.get("access-control-allow-origin")]).toEqual([200, origin]);
});
