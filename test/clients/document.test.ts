import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { swaggerUi } from "../../src/server/swagger_ui.ts";
import { testApp } from "../support/app.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { MODULES, skipsClients } from "./generators.ts";

setDefaultTimeout(2 * TEST_TIMEOUT_MS);

/** What is used of Spectral, whose own types are not where `bun run check` looks. */
interface Spectral {
  setRuleset(ruleset: { extends: unknown[] }): void;
  run(document: unknown): Promise<{ code: string; path: string[]; message: string }[]>;
}

async function problemsOf(document: unknown): Promise<string[]> {
  const core: { Spectral: new () => Spectral } = await import(
    join(MODULES, "@stoplight/spectral-core")
  );
  const { oas } = await import(join(MODULES, "@stoplight/spectral-rulesets"));
  const spectral = new core.Spectral();
  spectral.setRuleset({ extends: [oas] });

  return (await spectral.run(document)).map(
    ({ code, path, message }) => `${code} at ${path.join("/")}: ${message}`,
  );
}

test.skipIf(skipsClients())(
  "Spectral's rules for OpenAPI find nothing in the document, but find what breaks one of them",
  async () => {
    const request = new Request("http://localhost:3000/swagger/json");
    const response = await testApp({ docsFiles: swaggerUi }).fetch(request);
    expect(await problemsOf(await response.json())).toEqual([]);
    expect(
      await problemsOf({ openapi: "3.0.3", info: { title: "", version: "1" }, paths: {} }),
    ).toContain('info-contact at info: Info object must have "contact" object.');
  },
);
