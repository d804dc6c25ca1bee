import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync } from "node:fs";

import { TOKEN } from "../support/client.ts";
import { skipped } from "../support/missing.ts";
import { TEXT } from "../support/plants.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** The program, of `requirements.txt`. `.ci/run` sets it where PyPI is. */
const PROGRAM = process.env["SCHEMATHESIS"] ?? "";
const skips = !existsSync(PROGRAM) && skipped("Schemathesis: SCHEMATHESIS names no program");

describe.skipIf(skips)("stock Schemathesis", () => {
  test("finds nothing that the document does not say", async () => {
    expect(await schemathesis()).toEqual({
      exitCode: 0,
      stdout: expect.stringContaining("No issues found"),
    });
  });

  test("finds a plant that a document permits and the server refuses", async () => {
    const { exitCode, stdout } = await schemathesis((document) =>
      document.replaceAll(String.raw`"^[^\\x00]*$"`, String.raw`"^\\x00$"`),
    );

    expect(exitCode).toBe(1);
    expect(stdout).toContain(`\`${TEXT}\` must not contain U+0000`);
  });
});

/** Tests a new server by its document, or by what `edit` makes of it, for half a minute at most. */
async function schemathesis(edit = (document: string) => document) {
  using directory = emptyDirectory();
  const { path: cwd } = directory;
  await using server = await startServer({ cwd, env: { AUTH_TOKENS: TOKEN } });
  const { stdout: document } = await runToEnd({ args: ["openapi"], cwd });
  await Bun.write(directory.at("openapi.json"), edit(document));

  const { exitCode, stdout } = await runToEnd({
    // No `--max-time`: with it, Schemathesis begins anew until the time is over.
    program: ["timeout", "30", PROGRAM, "run", "openapi.json"],
    args: ["--url", server.url, "--header", `Authorization: Bearer ${TOKEN}`],
    cwd,
  });
  return { exitCode, stdout };
}
