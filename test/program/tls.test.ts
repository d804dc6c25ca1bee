import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { post, TOKEN } from "../support/client.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, ROOT, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// Made for these tests: for localhost, signed by itself.
const CERT = join(ROOT, "test/support/tls/localhost.crt");
const KEY = join(ROOT, "test/support/tls/localhost.key");

test("with TLS_CERT_FILE and TLS_KEY_FILE the server speaks HTTPS, under a host of any length", async () => {
  using directory = emptyDirectory();
  const env = { AUTH_TOKENS: TOKEN, TLS_CERT_FILE: CERT, TLS_KEY_FILE: KEY };
  await using server = await startServer({ cwd: directory.path, env });
  expect(server.url).toStartWith("https://127.0.0.1:");
  for (const host of [undefined, "a", "ab", "plants.example.org"]) {
    const response = await post(server.url, undefined, {
      tls: { ca: Bun.file(CERT) },
      headers: { ...(host && { host }) },
    });
    expect({ host, status: response.status, body: await response.text() }).toEqual({
      host,
      status: 200,
      body: '{"name":"Fern"}',
    });
  }
});

test("TLS files that are missing or no PEM stop the start with one line", async () => {
  using directory = emptyDirectory();
  for (const [cert, says] of [
    ["missing.pem", 'Cannot read "missing.pem": '],
    [join(ROOT, "package.json"), `Cannot use "${join(ROOT, "package.json")}" with "`],
  ] as const) {
    const env = { AUTH_TOKENS: TOKEN, TLS_CERT_FILE: cert, TLS_KEY_FILE: KEY };
    const run = await runToEnd({ cwd: directory.path, args: ["--port", "0"], env });
    expect({ says, exitCode: run.exitCode }).toEqual({ says, exitCode: 1 });
    expect(run.stderr).toStartWith(says);
    expect(run.stderr.trimEnd()).not.toContain("\n");
  }
});
