import { expect, test } from "bun:test";
import { swaggerUi } from "../../src/adapters/swagger_ui.ts";
import { testApp } from "../support/app.ts";

const BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

function home(accept: string): Request {
  return new Request("http://localhost/", { headers: { accept } });
}

test("GET / sends a person to the documentation", async () => {
  const answer = await testApp({ docsFiles: swaggerUi }).fetch(home(BROWSER));
  expect(answer.status).toBe(302);
  expect(answer.headers.get("location")).toBe("/swagger");
  expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
});

test("GET / gives a machine links that all lead somewhere", async () => {
  const app = testApp({ docsFiles: swaggerUi });
  const answer = await app.fetch(home("*/*"));
  expect(answer.headers.get("content-type")).toBe("application/json");
  const { name, links } = (await answer.json()) as { name: string; links: Record<string, string> };
  expect(name).toBe("Plant Store");
  for (const path of Object.values(links)) {
    expect((await app.fetch(new Request(`http://localhost${path}`))).status).not.toBe(404);
  }
});

test("GET / without documentation gives everybody the links that are left", async () => {
  const answer = await testApp().fetch(home(BROWSER));
  expect(answer.status).toBe(200);
  expect(await answer.json()).toEqual({
    name: "Plant Store",
    links: { plants: "/plants", liveness: "/livez", readiness: "/readyz" },
  });
});
