import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { swaggerUi } from "../../src/server/swagger_ui.ts";
import { testApp } from "../support/app.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { MODULES, skipsClients } from "./generators.ts";

setDefaultTimeout(2 * TEST_TIMEOUT_MS);

/** What is used of Spectral, whose own types are not where `bun run check` looks. */
interface Spectral {
  setRuleset(ruleset: { readonly extends: readonly unknown[] }): void;
  run(
    document: unknown,
  ): Promise<readonly { readonly code: string; readonly path: string[]; readonly message: string }[]>;
}

async function problemsOf(document: unknown): Promise<readonly string[]> {
  const core = (await import(join(MODULES, "@stoplight/spectral-core"))) as { Spectral: new () => Spectral };
  const { oas } = (await import(join(MODULES, "@stoplight/spectral-rulesets"))) as { oas: unknown };
  const spectral = new core.Spectral();
  spectral.setRuleset({ extends: [oas] });
  return (await spectral.run(document)).map(({ code, path, message }) => `${code} at ${path.join("/")}: ${message}`);
}

describe.skipIf(skipsClients())("Spectral's rules for OpenAPI find nothing", () => {
  test("in the document that is served", async () => {
    const app = testApp({ docsFiles: swaggerUi });
    const response = await app.fetch(new Request("http://localhost:3000/swagger/json"));
    expect(await problemsOf(await response.json())).toEqual([]);
  });

  test("but what breaks one of them", async () => {
    expect(await problemsOf({ openapi: "3.0.3", info: { title: "", version: "1" }, paths: {} })).toContainEqual(
      'info-contact at info: Info object must have "contact" object.',
    );
  });
});
