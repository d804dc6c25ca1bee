import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";

import { type Browser, chromium, type Page, type Request as Sent } from "playwright-core";

import { EXAMPLE } from "../../src/http/plants.ts";
import { BROWSER, skipsBrowser } from "../support/browser.ts";
import { post, TOKEN } from "../support/client.ts";
import { fern, ivy, jsonOf, returned } from "../support/plants.ts";
import { startServer } from "../support/program.ts";

/** 2^53 + 1: a page that reads it as a number writes another one. */
const PLANT = jsonOf(fern({ id: 2n ** 53n + 1n }));

const DOCUMENT_LINK = ".info hgroup a";

/**
 * What there is to read: the introduction, the operation and its table, its responses and their
 * headers.
 */
const READ = [
  ".info p",
  DOCUMENT_LINK,
  ".info__license__url a",
  ".opblock-description p",
  ".opblock-description summary",
  ".opblock-description th",
  ".opblock-description td",
  ".response-col_description p",
  "table.headers td",
  ".examples-select__section-label",
];
/** What has a colour of its own in both schemes. */
const COLOURED = [
  ".info .title small pre",
  ".btn.authorize span",
  ".opblock-summary-method",
  ".microlight span",
];
const DESKTOP = { width: 1280, height: 1000 };
const PHONE = { width: 390, height: 844 };

/**
 * The name by which the browser knows the server, and the only one that it can look up. With a local
 * name Swagger UI would not ask its validator on the internet, and the test could not notice that.
 */
const HOST = "plants.example";
const FLAGS = ["--no-proxy-server", `--host-resolver-rules=MAP ${HOST} 127.0.0.1, MAP * ~NOTFOUND`];

/**
 * Nothing inline, nothing evaluated, nothing from elsewhere. Trusted Types are more than Swagger UI
 * 5 can.
 */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** How long the browser may take for one step before the test fails, in milliseconds. */
const TEST_TIMEOUT_MS = 60_000;
setDefaultTimeout(4 * TEST_TIMEOUT_MS);

describe.skipIf(skipsBrowser("Swagger UI"))("/swagger in a browser", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: BROWSER, args: FLAGS });
  });
  afterAll(() => browser?.close());

  /** The page of a fresh program, in a fresh profile, with all that it asked for and complained of. */
  async function openDocs(stack: AsyncDisposableStack, viewport: typeof PHONE, prefix: string) {
    const { url } = stack.use(await startServer({ env: { AUTH_TOKENS: TOKEN } }));
    const context = stack.use(await browser.newContext({ viewport }));
    context.setDefaultTimeout(TEST_TIMEOUT_MS);
    const page = await context.newPage();
    const { port } = prefix === "" ? new URL(url) : stack.use(serveBelow(prefix, url));
    const origin = `http://${HOST}:${port}`;
    const requests: Sent[] = [];

    page.on("request", (request) => requests.push(request));
    const complaints: string[] = [];

    // Breaches of the policy are errors of the console.
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) complaints.push(message.text());
    });
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("requestfailed", (request) =>
      complaints.push(`${request.url()} ${request.failure()?.errorText}`),
    );

    const policy = (await page.goto(`${origin}${prefix}/swagger`))?.headers()[
      "content-security-policy"
    ];
    await page.getByRole("button", { name: "Authorize" }).waitFor();

    return { page, url, origin, policy, requests, complaints };
  }

  /** One page for the tests of a group, because it takes seconds of CPU to load. */
  function sharedDocs(viewport: typeof PHONE, prefix = "") {
    const stack = new AsyncDisposableStack();
    let docs: Awaited<ReturnType<typeof openDocs>>;
    beforeAll(async () => {
      docs = await openDocs(stack, viewport, prefix);
    });
    afterAll(() => stack.disposeAsync());
    return () => docs;
  }

  describe("on a phone", () => {
    const docs = sharedDocs(PHONE);

    test("shows the service, its version and its operation, in light and in dark as the reader prefers", async () => {
      const { page } = docs();
      expect(await page.title()).toBe("Plant Store");
      expect(await page.getByRole("heading", { level: 1 }).innerText()).toMatch(
        /^Plant Store\s*1\.0\.0/,
      );
      const { paths } = await (await fetch(`${docs().url}/swagger/json`)).json();
      const operations = Object.values<object>(paths).flatMap(Object.keys);
      expect(await page.locator(".opblock-summary-control").count()).toBe(operations.length);

      const icon = await fetch(
        new URL((await page.locator("link[rel=icon]").getAttribute("href")) ?? "", docs().url),
      );
      expect([icon.status, icon.headers.get("content-type")]).toEqual([200, "image/png"]);

      await openOperation(page);
      for (const colorScheme of ["dark", "light"] as const) {
        await page.emulateMedia({ colorScheme });
        // The browser tells the page in one of the next frames (HTML, section 8.1.7.3).
        await page
          .locator(colorScheme === "dark" ? "html.dark-mode" : "html:not(.dark-mode)")
          .waitFor();
        for (const text of READ) await expectReadable(page, text, colorScheme);
        for (const text of COLOURED)
          for (const element of await page.locator(text).all())
            expect(contrastOf(await element.evaluate(colorsOf)), text).toBeGreaterThanOrEqual(4.5);
      }
    });

    test("gives each menu of examples a name", async () => {
      const { page } = docs();
      await openOperation(page);
      const menus = page.locator(".examples-select-element").filter({ visible: true });
      expect(await menus.count()).toBeGreaterThan(1);
      expect(await page.getByRole("combobox", { name: "Examples" }).count()).toBe(
        await menus.count(),
      );
    });

    test("shows the parameters of an operation that a fork has added", async () => {
      const { page, url, origin } = docs();
      const document = await (await fetch(`${url}/swagger/json`)).json();
      const id = { in: "path", name: "id", required: true, schema: { type: "string" } };
      const responses = { 200: { description: "The plant" } };
      const get = { parameters: [id], responses, tags: ["plants"] };
      document.paths = { "/plants/{id}": { get } };

      await page.route("**/swagger/json", (route) => route.fulfill({ json: document }));
      await page.goto(`${origin}/swagger?added`);
      const added = page.locator(".opblock-get");
      await added.getByRole("button", { name: "Try it out" }).click();
      expect(await added.locator("table.parameters input").isVisible()).toBe(true);

      await page.unroute("**/swagger/json");
      await page.goto(`${origin}/swagger`);
      await page.getByRole("button", { name: "Authorize" }).waitFor();
    });

    test("shows the 401 that a wrong token gets, and fits the screen with it", async () => {
      await authorize(docs().page, `${TOKEN}-not`);
      expect(await tryOut(docs().page, PLANT)).toMatchObject({
        status: "401",
        body: { error: 4012 },
      });
      expect(await docs().page.evaluate(() => document.documentElement.scrollWidth)).toBe(
        PHONE.width,
      );

      await expectNothingCovered(docs().page);
    });
  });

  describe("on a desktop, below a path prefix, behind a proxy that takes it off", () => {
    const prefix = "/api/v1";
    const docs = sharedDocs(DESKTOP, prefix);

    test("opens on its operation, with the errors folded and no menu of servers", async () => {
      const { page } = docs();
      expect(await page.locator(OPERATION).getAttribute("class")).toContain("is-open");

      const { y } = await boxOf(page, OPERATION);
      expect(y).toBeWithin(0, DESKTOP.height / 2);

      const { y: end, height } = await boxOf(page, ".body-param__example");
      expect(end + height).toBeLessThan(DESKTOP.height);
      expect(await page.locator(".servers, .servers-title").filter({ visible: true }).count()).toBe(
        0,
      );

      const errors = page.locator(".opblock-description td").first();
      for (const isVisible of [true, false]) {
        await page.locator(`${OPERATION} .opblock-description summary`).click();
        expect(await errors.isVisible()).toBe(isVisible);
      }
    });

    test("offers a plant that can be stored as it is, and stores a typed one with its exact id", async () => {
      const { page, url, origin, requests } = docs();
      await authorize(page, TOKEN);
      const { id, ...offered } = EXAMPLE;
      expect(await tryOut(page)).toMatchObject({ status: "200", body: offered });
      expect(await tryOut(page, PLANT)).toEqual({ status: "200", body: returned(fern()) });

      await expectNothingCovered(page);
      const sent = requests.filter((request) => request.method() !== "GET");
      expect(sent.map((request) => `${request.method()} ${request.url()}`)).toEqual(
        Array.from({ length: 2 }, () => `POST ${origin}${prefix}/plants`),
      );
      expect(sent[0]?.postDataJSON()).toMatchObject({ id, ...offered });
      expect(sent[1]?.postData()).toBe(PLANT);
      expect((await post(url, ivy({ id: 2n ** 53n + 1n }))).status).toBe(409);
      expect((await post(url, ivy({ id: 2n ** 53n }))).status).toBe(200);
    });

    test("requests nothing from other origins, under the strictest policy that Swagger UI supports", async () => {
      const { page, origin, policy, requests, complaints } = docs();
      expect(policy).toBe(POLICY);

      await openOperation(page);
      const closed = page.locator("[aria-expanded=false]");
      while ((await closed.count()) > 0) await closed.first().click();
      expect(
        requests.map((request) => request.url()).filter((url) => new URL(url).origin !== origin),
      ).toEqual([]);
      expect(complaints).toEqual([]);
    });

    test.each([DESKTOP, PHONE])(
      "goes to the operation that the address links, at $width by $height",
      async (viewport) => {
        const { page, origin } = docs();
        await page.setViewportSize(viewport);
        await page.goto("about:blank");
        await page.goto(`${origin}${prefix}/swagger#/plants/createPlant`);
        await page.waitForFunction(
          (selector) =>
            Math.abs(document.querySelector(selector)?.getBoundingClientRect().y ?? Infinity) < 20,
          OPERATION,
        );

        expect(await page.locator(OPERATION).getAttribute("class")).toContain("is-open");

        const { y } = await boxOf(page, `${OPERATION} .try-out__btn`);
        expect(y).toBeWithin(0, viewport.height / 2);
      },
    );
  });
});

const OPERATION = "#operations-plants-createPlant";

async function boxOf(page: Page, selector: string) {
  const box = await page.locator(selector).first().boundingBox();
  if (box === null) throw new Error(`${selector} is not visible`);
  return box;
}

/** The buttons to copy and to download are beside the text of the response, not over it. */
async function expectNothingCovered(page: Page): Promise<void> {
  const text = await boxOf(page, ".live-responses-table pre");
  for (const button of [".download-contents", ".highlight-code > .copy-to-clipboard"]) {
    const { y } = await boxOf(page, `.live-responses-table ${button}`);
    expect(y, button).toBeGreaterThanOrEqual(text.y + text.height);
  }
}

/** A proxy that hands on what is asked for below a prefix, without the prefix. */
function serveBelow(prefix: string, target: string): Bun.Server<undefined> {
  const forward = (request: Request) => {
    const { pathname } = new URL(request.url);
    return fetch(new Request(`${target}${pathname.slice(prefix.length)}`, request), {
      decompress: false,
    });
  };
  return Bun.serve({ port: 0, routes: { [`${prefix}/*`]: forward } });
}

async function authorize(page: Page, token: string): Promise<void> {
  await page.getByRole("button", { name: "Authorize" }).click();
  await page.getByRole("textbox", { name: "auth-bearer-value" }).fill(token);
  await page.getByRole("button", { name: "Apply credentials" }).click();
  await page.getByRole("button", { name: "Close" }).click();
}

/**
 * Sends a plant as it is typed here, or as the page offers it, and reads what the page shows of the
 * response.
 */
async function tryOut(page: Page, typed?: string) {
  await openOperation(page);
  const operation = page.locator(OPERATION);
  const execute = operation.getByRole("button", { name: "Execute" });

  // Tried before, the page shows the response to that: it is taken away.
  const first = (await execute.isVisible()) ? "Clear" : "Try it out";
  await operation.getByRole("button", { name: first }).click();
  if (typed !== undefined) await operation.locator(".body-param__text").fill(typed);
  await execute.click();

  const response = operation.locator(".live-responses-table .response");
  return {
    status: await response.locator(".response-col_status").innerText(),
    body: JSON.parse(await response.locator("pre").first().innerText()) as unknown,
  };
}

async function openOperation(page: Page): Promise<void> {
  const operation = page.getByRole("button", { name: "POST /plants Create a plant" });
  if ((await operation.getAttribute("aria-expanded")) !== "true") await operation.click();
}

async function expectReadable(
  page: Page,
  text: string,
  colorScheme: "light" | "dark",
): Promise<void> {
  const colors = await page.locator(text).first().evaluate(colorsOf);
  const [ink = 0, paper = 0] = colors.map(luminance);
  expect(ink < paper ? "light" : "dark", text).toBe(colorScheme);
  expect(contrastOf(colors), `${text} in ${colorScheme}`).toBeGreaterThanOrEqual(4.5);
}

/** WCAG 2.2, success criterion 1.4.3. */
function contrastOf(colors: readonly string[]): number {
  const [ink = 0, paper = 0] = colors.map(luminance);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}

/** The colours of a text and of the first opaque thing behind it. Runs in the page. */
async function colorsOf(element: Element): Promise<[ink: string, paper: string]> {
  // A link's colour changes by a transition.
  await Promise.allSettled(document.getAnimations().map(({ finished }) => finished));

  let behind: Element | null = element;
  while (behind !== null && !getComputedStyle(behind).backgroundColor.startsWith("rgb("))
    behind = behind.parentElement;
  const paper = behind === null ? "rgb(255, 255, 255)" : getComputedStyle(behind).backgroundColor;
  return [getComputedStyle(element).color, paper];
}

/** The relative luminance of `rgb(…)`, from 0 to 1 (WCAG 2.2). */
function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = (color.match(/\d+/g) ?? []).map((part) => {
    const level = Number(part) / 255;
    return level <= 0.04045 ? level / 12.92 : ((level + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
