import { expect, setDefaultTimeout, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { post } from "../support/client.ts";
import { emptyDirectory, exitCodeOf, FROM_SOURCE, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("from source the server serves and checks its database, with the settings of .env; and the commands read it", async () => {
  using directory = emptyDirectory();
  const options = { program: FROM_SOURCE, cwd: directory.path };
  writeFileSync(join(directory.path, ".env"), "AUTH_TOKENS=from-dot-env-0123456789\n");
  const plant = '{"id":9223372036854775807,"name":"Fern"}';
  {
    await using server = await startServer(options);
    expect((await post(server.url, plant, { token: "from-dot-env-0123456789" })).status).toBe(200);
    expect((await fetch(`${server.url}/swagger/swagger-ui-bundle.js`)).status).toBe(200);
    await server.stderr.until(/"Integrity check passed"/);
    server.child.kill("SIGTERM");
    expect(await exitCodeOf(server.child)).toBe(0);
  }
  expect(await runToEnd({ ...options, args: ["backup", "copy.db"] })).toMatchObject({ exitCode: 0 });
  const exported = await runToEnd({ ...options, args: ["export", "--database", "file:copy.db"] });
  expect(exported).toEqual({ exitCode: 0, stdout: `${plant}\n`, stderr: "" });
});
