import { expect, setDefaultTimeout, test } from "bun:test";

import { swaggerUi } from "../../src/server/swagger_ui.ts";
import { testApp } from "../support/app.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const app = testApp({ docsFiles: swaggerUi });

function get(
  path: string,
  headers: Record<string, string> = {},
  method = "GET",
): Promise<Response> {
  return Promise.resolve(app.fetch(new Request(`http://localhost${path}`, { method, headers })));
}

test.each(["/", "/swagger/"])(
  "GET %s redirects to the documentation, even below a prefix of a proxy",
  async (path) => {
    const { status, headers } = await get(path);
    expect([status, headers.get("vary")]).toEqual([302, null]);
    // A proxy serves `/` as `/garden/`, and a client resolves the location against that.
    const location = headers.get("location") ?? "";
    expect(new URL(location, `http://localhost${path}`).pathname).toBe("/swagger");
    expect(new URL(location, `http://localhost/garden${path}`).pathname).toBe("/garden/swagger");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
  },
);

const COMPRESSED = [
  ["/swagger", "text/html; charset=utf-8"],
  ["/swagger/page.css", "text/css; charset=utf-8"],
  ["/swagger/start.js", "text/javascript; charset=utf-8"],
  ["/swagger/swagger-ui.css", "text/css; charset=utf-8"],
  ["/swagger/swagger-ui-bundle.js", "text/javascript; charset=utf-8"],
  ["/swagger/json", "application/json"],
] as const;

test.each(COMPRESSED)(
  "%s comes with gzip to a client that takes it, and is the same file",
  async (path, type) => {
    const plain = await get(path);
    const gzip = await get(path, { "accept-encoding": "gzip, deflate, br, zstd" });

    for (const { status, headers } of [plain, gzip]) {
      expect(status).toBe(200);
      expect(headers.get("content-type")).toBe(type);
      expect(headers.get("vary")).toBe("accept-encoding");
      expect(headers.get("cache-control")).toBe("no-cache");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("content-security-policy")).toContain("default-src 'none'");
    }

    expect([plain.headers.get("content-encoding"), gzip.headers.get("content-encoding")]).toEqual([
      null,
      "gzip",
    ]);

    const whole = await plain.bytes();
    const compressed = await gzip.bytes();
    expect(compressed.length).toBeLessThan(whole.length);
    expect(Bun.gunzipSync(compressed)).toEqual(whole);
  },
);

test("a picture is compressed already, and comes as it is", async () => {
  const response = await get("/swagger/favicon-32x32.png", { "accept-encoding": "gzip" });
  expect(response.headers.get("content-type")).toBe("image/png");
  expect([response.headers.get("content-encoding"), response.headers.get("vary")]).toEqual([
    null,
    null,
  ]);
  expect(await response.bytes()).toEqual(await swaggerUi["favicon-32x32.png"].bytes());
});

test.each([
  ["gzip, deflate, br, zstd", true],
  ["gzip;q=1.0, deflate;q=0.6, identity;q=0.3", true],
  ["br, gzip;q=0.1", true],
  // Chromium, for audio and video.
  ["identity;q=1, *;q=0", false],
  ["identity", false],
  ["br", false],
  ["", false],
])("Accept-Encoding: %j decides about gzip", async (accepted, isGzip) => {
  const response = await get("/swagger", { "accept-encoding": accepted });
  expect(response.headers.get("content-encoding")).toBe(isGzip ? "gzip" : null);
});

test.each([...COMPRESSED.map(([path]) => path), "/swagger/favicon-32x32.png"])(
  "%s is 304 for a client that has it already (RFC 9110, section 13.1.2)",
  async (path) => {
    for (const encoding of ["gzip", "identity"]) {
      const first = await get(path, { "accept-encoding": encoding });
      const etag = first.headers.get("etag") ?? "";
      expect(etag).toMatch(/^"[0-9a-f]{32}(-gzip)?"$/);

      // A proxy that compresses by itself marks the ETag as weak.
      for (const known of [etag, `W/${etag}`, `"x", ${etag}`, "*"]) {
        const again = await get(path, { "accept-encoding": encoding, "if-none-match": known });
        expect([again.status, await again.text()]).toEqual([304, ""]);
        for (const name of ["etag", "cache-control", "vary"]) {
          expect(again.headers.get(name)).toBe(first.headers.get(name));
        }
      }

      const other = await get(path, { "accept-encoding": encoding, "if-none-match": '"x", W/"y"' });
      expect(other.status).toBe(200);
    }
  },
);

test("a file has one ETag for each encoding, and HEAD tells what GET does", async () => {
  const headers = { "accept-encoding": "gzip" };
  const plain = await get("/swagger");
  const gzip = await get("/swagger", headers);

  const plainTag = plain.headers.get("etag") ?? "";
  expect((await get("/swagger", { ...headers, "if-none-match": plainTag })).status).toBe(200);

  const head = await get("/swagger", headers, "HEAD");
  for (const name of ["etag", "content-encoding", "content-type", "vary"]) {
    expect(head.headers.get(name)).toBe(gzip.headers.get(name));
  }

  expect(head.headers.get("content-length")).toBe(String((await gzip.bytes()).length));
});
