import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { post, TOKEN } from "../support/client.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, ROOT, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// Made for these tests: for localhost, signed by itself.
const CERT = join(ROOT, "test/support/tls/localhost.crt");
const KEY = join(ROOT, "test/support/tls/localhost.key");

test("with TLS_CERT_FILE and TLS_KEY_FILE the server speaks HTTPS, under a host of any length", async () => {
  const env = { AUTH_TOKENS: TOKEN, TLS_CERT_FILE: CERT, TLS_KEY_FILE: KEY };
  await using server = await startServer({ env });
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

test("TLS files that are missing, no PEM or not a pair stop the start with one line and exit code 2", async () => {
  using directory = emptyDirectory();
  const other = KEY.replace("localhost", "renewed");
  for (const [cert, key, says] of [
    ["missing.pem", KEY, 'Cannot use TLS_CERT_FILE "missing.pem": no such file or directory'],
    [CERT, "/dev/zero", 'Cannot use TLS_KEY_FILE "/dev/zero": expected at most 1048576 bytes'],
    [CERT, other, `Cannot use TLS_CERT_FILE "${CERT}" with TLS_KEY_FILE "${other}": `],
  ] as const) {
    const env = { AUTH_TOKENS: TOKEN, TLS_CERT_FILE: cert, TLS_KEY_FILE: key };
    const run = await runToEnd({ cwd: directory.path, args: ["--port", "0"], env });
    expect({ says, exitCode: run.exitCode }).toEqual({ says, exitCode: 2 });
    expect(run.stderr).toStartWith(says);
    expect(run.stderr.trimEnd()).not.toContain("\n");
  }
});
