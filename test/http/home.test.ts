import { expect, test } from "bun:test";
import { swaggerUi } from "../../src/server/swagger_ui.ts";
import { testApp } from "../support/app.ts";

const BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

function home(accept: string): Request {
  return new Request("http://localhost/", { headers: { accept } });
}

test("GET / sends a person to the documentation", async () => {
  const response = await testApp({ docsFiles: swaggerUi }).fetch(home(BROWSER));
  expect(response.status).toBe(302);
  expect(response.headers.get("location")).toBe("/swagger");
  expect(response.headers.get("x-content-type-options")).toBe("nosniff");
});

test.each([
  ["text/html", 302],
  ["TEXT/HTML, application/json;q=0.9", 302],
  ["text/html;level=1;q=0.9, */*;q=0.8", 302],
  ["text/*, application/json;q=0.5", 302],
  ["application/json, text/html;q=0.9", 200],
  ["text/html;q=0, */*", 200],
  ["text/html;q=0.5, application/*;q=0.7", 200],
  ["text/html, application/json", 200],
  ["*/*", 200],
  ["image/png", 200],
  ["", 200],
])("GET / weighs what is accepted: %j (RFC 9110, section 12.5.1)", async (accept, status) => {
  const response = await testApp({ docsFiles: swaggerUi }).fetch(home(accept));
  expect([response.status, response.headers.get("vary")]).toEqual([status, "accept"]);
});

test("GET / gives a machine links that all lead somewhere", async () => {
  const app = testApp({ docsFiles: swaggerUi });
  const response = await app.fetch(home("*/*"));
  expect(response.headers.get("content-type")).toBe("application/json");
  const { name, links } = (await response.json()) as { name: string; links: Record<string, string> };
  expect(name).toBe("Plant Store");
  for (const path of Object.values(links)) {
    expect((await app.fetch(new Request(`http://localhost${path}`))).status).not.toBe(404);
  }
});

test("GET / without documentation gives everybody the links that are left", async () => {
  const response = await testApp().fetch(home(BROWSER));
  expect([response.status, response.headers.get("vary")]).toEqual([200, null]);
  expect(await response.json()).toEqual({
    name: "Plant Store",
    links: { plants: "/plants", liveness: "/livez", readiness: "/readyz" },
  });
});
