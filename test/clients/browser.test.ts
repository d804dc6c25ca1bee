import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { chromium } from "playwright-core";

import { withDeadline } from "../../src/async/timers.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { testApp, TOKEN } from "../support/app.ts";
import { BROWSER, skipsBrowser } from "../support/browser.ts";
import { fern, membersOf, returned } from "../support/plants.ts";
import { ROOT, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const skips = skipsBrowser("plant-store/client in a browser");

/** The client as a browser loads it. */
async function clientScript(): Promise<Response> {
  const { outputs } = await Bun.build({ entrypoints: [join(ROOT, "src/http/client.ts")] });
  return new Response(outputs[0], { headers: { "content-type": "text/javascript" } });
}

const PAGE = new Response("<!doctype html>", { headers: { "content-type": "text/html" } });

test.skipIf(skips)(
  "a page sends a plant with an id past 2^53 again, after a gateway's error and a redirect to a login",
  async () => {
    const sent: NewPlant[] = [];

    const add = async (plant: NewPlant) => {
      sent.push(plant);
      return "added" as const;
    };

    const app = testApp({ plants: { add } });
    const gateway = [new Response(null, { status: 502 }), Response.redirect("/login")];
    let requests = 0;
    using server = Bun.serve({
      port: 0,
      routes: {
        "/": PAGE,
        "/client.js": await clientScript(),
        "/login": () => Response.json(returned(fern())),
        "/plants": (request) => gateway[requests++] ?? app.fetch(request),
      },
    });

    await using browser = await chromium.launch({ executablePath: BROWSER });
    const page = await browser.newPage();
    await page.goto(server.url.href);

    const response = await page.evaluate(`(async () => {
      const { fetchWithRetries, int64 } = await import("/client.js");
      const response = await fetchWithRetries("/plants", {
        method: "POST",
        headers: { authorization: "Bearer ${TOKEN}", "content-type": "application/json" },
        body: JSON.stringify({ id: int64(2n ** 63n - 1n), ${membersOf(fern())} }),
      });
      return { status: response.status, body: await response.json() };
    })()`);

    expect(response).toEqual({ status: 200, body: returned(fern()) });
    expect({ requests, sent }).toEqual({
      requests: 3,
      sent: [fern({ id: 2n ** 63n - 1n })],
    });
  },
);

test.skipIf(skips)(
  "a page sends a plant while it is left, if that is kept alive and a text",
  async () => {
    const left = Array.from({ length: 2 }, () => Promise.withResolvers<void>());
    const add = async ({ id }: NewPlant) => {
      left[Number(id)]?.resolve();
      return "added" as const;
    };
    const app = testApp({ plants: { add } });
    using server = Bun.serve({
      port: 0,
      routes: {
        "/": PAGE,
        "/client.js": await clientScript(),
        "/plants": (request) => app.fetch(request),
      },
    });
    await using browser = await chromium.launch({ executablePath: BROWSER });
    const context = await browser.newContext();

    for (const id of left.keys()) {
      const page = await context.newPage();
      await page.goto(server.url.href);
      await page.evaluate(`(async () => {
        const { fetchWithRetries } = await import("/client.js");
        addEventListener("pagehide", () => void fetchWithRetries("/plants", {
          method: "POST",
          keepalive: true,
          headers: { authorization: "Bearer ${TOKEN}", "content-type": "application/json" },
          body: JSON.stringify({ id: ${id}, ${membersOf(fern())} }),
        }));
      })()`);
      await page.goto("about:blank");
      await page.close();
    }

    const arrived = Promise.all(left.map(({ promise }) => promise));
    await withDeadline(arrived, 20_000, () => expect.unreachable("A page sent no plant"));
  },
);
