import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { createHash } from "node:crypto";

import { getMetricsFromIterator } from "prom2javascript";

import { bearer, post, untilTokenIs } from "../support/client.ts";
import { guideProject } from "../support/guide_project.ts";
import { blocks, table } from "../support/guides.ts";
import { jwksServer, signed, signingKey } from "../support/jwt_provider.ts";
import { connect } from "../support/load.ts";
import {
  MODULE_RUNTIMES,
  type ModuleRuntime,
  NEWEST_COMPILER,
  skipsRuntimes,
} from "../support/module_runtimes.ts";
import { fern, ivy, jsonOf, returned, TEXT } from "../support/plants.ts";
import { exitCodeOf, TEST_TIMEOUT_MS } from "../support/program.ts";
import { readError, readPlant } from "../support/responses.ts";

// The programs of the embedding guide, in a project that has installed the package.
setDefaultTimeout(TEST_TIMEOUT_MS);

/** The token that the guide's programs accept. */
const TOKEN = "a-token-of-the-greenhouse";

const [app = ""] = blocks("Embed the module", "ts");
const mounts = blocks("Within another app", "ts");
const [lazy = ""] = blocks("In a framework with a build", "ts");
const [tokens = "", pages = "", server = ""] = blocks("A server of your own", "ts");
const [jwts = ""] = blocks("In your own program", "ts");

/** The guide's app, with the pages of the documentation. */
const appWithPages = `${pages}\n${app.replace("authenticate:", "docsFiles,\n  authenticate:")}`;

/** What takes the prefix off, by its name, and the programs: those begin with a comment. */
const [inGarden = "", onNode = ""] = mounts.filter((code) => !code.startsWith("//"));
const programs = mounts.filter((code) => code.startsWith("//")).map(withHelper);

function withHelper(program: string): string {
  const helpers = [program.includes("inGarden") && inGarden, program.includes("onNode") && onNode];
  return program.replace("\n", `\n${helpers.filter(Boolean).join("\n")}\n`);
}

/** Each mount of the guide, by the first word of its comment, on runtimes that it is for. */
const MOUNTS = programs.flatMap((code) => {
  const title = /^\/\/ (\w+(?: of Bun)?)/.exec(code)?.[1] ?? "";
  const kind = code.includes("Bun.serve") || title === "Elysia" ? "bun" : "node";
  const runtimes = MODULE_RUNTIMES.filter((runtime) => runtime.kind === kind);
  // What differs between Nodes shows in Express: once is enough for the others.
  const some = title === "Express" ? runtimes : runtimes.slice(-1);
  return some.map((runtime) => ({ what: `${title} on ${runtime.name}`, code, runtime }));
});

let project: Awaited<ReturnType<typeof guideProject>>;
const skips = skipsRuntimes("the programs of the embedding guide");
beforeAll(async () => {
  if (!skips) project = await guideProject();
});
afterAll(() => project?.[Symbol.dispose]());

describe.skipIf(skips).each(MOUNTS)("mounted in $what", ({ code, runtime }) => {
  let outer: Awaited<ReturnType<typeof project.serve>>;
  let url: string;
  beforeAll(async () => {
    outer = await project.serve(runtime, `${appWithPages}\n${code}`);
    url = `${outer.url}/garden`;
  });
  afterAll(() => outer?.[Symbol.asyncDispose]());

  test("the app stores a plant, refuses another one under its id, and every wrong token", async () => {
    const headers = { "x-request-id": "from-the-client" };
    const stored = await post(url, fern(), { token: TOKEN, headers });
    expect(await readPlant(stored)).toEqual({ status: 200, body: returned(fern()) });
    expect(stored.headers.get("x-request-id")).toBe("from-the-client");

    const conflict = await post(url, ivy(), { token: TOKEN });
    expect(await readError(conflict)).toMatchObject({ status: 409, error: 4091 });

    const wrong = await post(url, fern(), { token: "another-token-0123456789" });
    expect(wrong.headers.get("www-authenticate")).toContain("invalid_token");
    expect(await readError(wrong)).toMatchObject({ status: 401, error: 4012 });

    const none = await post(url, fern(), { token: null });
    expect(await readError(none)).toMatchObject({ status: 401, error: 4011 });
  });

  test("a body over the limit gets 413, with Content-Length or chunked, and 401 without a token", async () => {
    const large = fern({ id: 2, [TEXT]: "x".repeat(200_000) });
    const refused = await post(url, large, { token: TOKEN });
    expect(await readError(refused)).toMatchObject({ status: 413, error: 4131 });

    const chunked = await fetch(`${url}/plants`, {
      method: "POST",
      headers: { ...bearer(TOKEN), "content-type": "application/json" },
      body: new Blob([jsonOf(large)]).stream(),
    });
    expect(await readError(chunked)).toMatchObject({ status: 413, error: 4131 });
    expect((await post(url, large, { token: null })).status).toBe(401);

    // The runtime would refuse this length without a body, and without the app.
    const announced = await connect(outer.url);
    const response = await announced.request(requestOf({ length: 1_000_000_000 }));
    announced.close("reset");

    expect(response).toMatchObject({ status: 413, body: expect.stringContaining('"error":4131') });
  });

  test("a client that goes away in the middle of its body stores nothing", async () => {
    const ids = Array.from({ length: 12 }, (_, index) => 100 + index);
    const clients = await Promise.all(ids.map(() => connect(outer.url)));
    clients.forEach((client, index) => {
      const body = jsonOf(fern({ id: ids[index] ?? 0 }));
      client.send(requestOf({ length: body.length + (index % 2), body: body.slice(0, -1) }));
      client.close(index % 3 === 0 ? "close" : "reset");
    });
    await Promise.all(clients.map(({ closed }) => closed));

    // Were a plant stored, another one under its id would be refused.
    for (const id of ids) {
      const other = await post(url, ivy({ id }), { token: TOKEN });
      expect(other.status).toBe(200);
    }
  });

  test("the app answers unknown paths and methods under the prefix, and the other app those outside", async () => {
    const unknown = await fetch(`${url}/unknown`);
    expect(unknown.headers.get("x-request-id")).not.toBeNull();
    expect(await readError(unknown)).toMatchObject({ status: 404, error: 4041 });

    const wrong = await fetch(`${url}/plants`, { method: "PUT" });
    expect(wrong.headers.get("allow")).toBe("POST");
    expect(await readError(wrong)).toMatchObject({ status: 405, error: 4051 });

    // A Request of the web cannot have this method.
    const tracing = await connect(outer.url);
    const traced = await tracing.request(requestOf({}).replace("POST", "TRACE"));
    tracing.close("reset");
    expect(traced?.status).toBeGreaterThanOrEqual(400);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);

    const home = await fetch(`${outer.url}/`);
    expect({ status: home.status, text: await home.text() }).toEqual({
      status: 200,
      text: "Welcome to the garden",
    });

    const outside = await fetch(`${outer.url}/plants`, { method: "POST" });
    expect({ status: outside.status, id: outside.headers.get("x-request-id") }).toEqual({
      status: 404,
      id: null,
    });
  });

  test("the app refuses a repeated Host under the prefix", async () => {
    const client = await connect(outer.url);
    const response = await client.request(requestOf({ host: "plants.example\r\nHost: other" }));
    client.close("reset");
    expect(response).toMatchObject({ status: 400, body: expect.stringContaining('"error":4003') });
  });

  test("Swagger UI finds its files, the document and the operation under the prefix", async () => {
    const home = await fetch(`${url}/`, { redirect: "manual" });
    expect(new URL(home.headers.get("location") ?? "", `${url}/`).href).toBe(`${url}/swagger`);

    const page = await fetch(`${url}/swagger`);
    const links = Array.from(
      (await page.text()).matchAll(/(?:src|href)="([^"]+)"/g),
      ([, to]) => to,
    );
    expect(links).toHaveLength(5);

    for (const link of links) {
      expect((await fetch(new URL(link ?? "", `${url}/swagger`))).status).toBe(200);
    }

    const document = (await (await fetch(`${url}/swagger/json`)).json()) as OpenApi;
    const base = new URL(document.servers[0]?.url ?? "", `${url}/swagger/json`);
    expect(base.href).toBe(`${url}/`);
    expect(document.paths).toHaveProperty(["/plants", "post"]);
  });
});

/** What is read of the document. */
interface OpenApi {
  readonly servers: readonly { readonly url: string }[];
  readonly paths: object;
}

/** A request to store a plant as bytes, or its beginning. */
function requestOf({ host = "localhost", length = 0, body = "" }): string {
  const lines = [
    "POST /garden/plants HTTP/1.1",
    `Host: ${host}`,
    `Authorization: Bearer ${TOKEN}`,
    "Content-Type: application/json",
    `Content-Length: ${length}`,
  ];

  return `${lines.join("\r\n")}\r\n\r\n${body}`;
}

describe.skipIf(skips)("the store of a framework with a build", () => {
  test.each(MODULE_RUNTIMES)(
    "on $name is opened by the first request, and once, whatever runs the module again",
    async (runtime) => {
      const file = `plants ${runtime.name}.db`;
      await project.write("garden.ts", lazy.replace("plants.db", file));
      const program = `
        import { existsSync } from "node:fs";
        import { inGarden } from "./garden.ts";
        const edited = await import("./garden.ts?edited");
        const isOpen = existsSync(${JSON.stringify(file)});
        const plant = { method: "POST", body: '${jsonOf(fern())}', headers: {
          authorization: "Bearer ${TOKEN}", "content-type": "application/json",
        } };
        const send = (mounted) => mounted(new Request("http://localhost/garden/plants", plant));
        const statuses = [await send(inGarden), await send(edited.inGarden)].map(({ status }) => status);
        // On the stored plant's path nothing tells two stores apart; the end does.
        await edited.closeGarden();
        console.log(isOpen, statuses.join(), (await send(inGarden)).status, existsSync("${file}-wal"));`;
      await project.write("reloads.ts", program);

      const flags = runtime.kind === "deno" ? ["--allow-read", "--allow-write"] : [];
      const env = { NODE_OPTIONS: "--disable-warning=ExperimentalWarning" };
      expect(await project.run([...runtime.run, ...flags, "reloads.ts"], env)).toEqual({
        exitCode: 0,
        output: expect.stringMatching(
          /^Created an empty database: .+\nfalse 200,200 503 false\n$|^false 200,200 503 false\nCreated an empty database: .+\n$/,
        ),
      });
    },
  );
});

describe.skipIf(skips)("a server of one's own", () => {
  test.each(MODULE_RUNTIMES)(
    "on $name accepts static tokens, follows the stored ones, and has the pages and metrics",
    async (runtime) => {
      await using own = await project.serve(reading(runtime), ownServer(runtime));
      const { url, child } = own;
      const statusOf = async (token: string) => (await post(url, undefined, { token })).status;

      expect(await statusOf(TOKEN)).toBe(200);

      // The store gets a token, and then revokes it, without the cache.
      expect(await statusOf(STORED)).toBe(401);

      child.kill("SIGUSR2");
      await untilTokenIs(200, url, STORED);
      child.kill("SIGUSR2");
      await untilTokenIs(401, url, STORED);

      expect((await fetch(`${url}/swagger`)).status).toBe(200);
      expect((await fetch(`${url}/metrics`)).status).toBe(401);

      const metrics = await fetch(`${url}/metrics`, { headers: bearer(TOKEN) });
      const { responses_total: responses } = await getMetricsFromIterator(
        (await metrics.text()).split("\n").values(),
      );
      expect(responses?.data).toContainEqual({
        labels: { path: "/metrics", status: "401" },
        value: 1,
      });
    },
  );

  test.each(MODULE_RUNTIMES)(
    "on $name ends after the plants in flight have their responses",
    async (runtime) => {
      await using own = await project.serve(reading(runtime), ownServer(runtime));
      const { url, child, stderr } = own;
      const held = post(url, fern({ [TEXT]: "held" }), { token: TOKEN });

      await stderr.until(/^holds$/m);
      child.kill("SIGTERM");
      while ((await fetch(`${url}/readyz`)).status === 200) await Bun.sleep(5);

      const late = await post(url, ivy({ id: 2 }), { token: TOKEN });
      expect(await readError(late)).toMatchObject({ status: 503, error: 5033 });

      child.kill("SIGHUP");
      expect((await held).status).toBe(200);
      expect(await exitCodeOf(child)).toBe(0);
      expect(await stderr.end).toBe("holds\n");
    },
  );
});

describe.skipIf(skips)("JWTs in a program of one's own", () => {
  test.each(MODULE_RUNTIMES)(
    "are accepted beside static tokens, as the guide says, on $name",
    async ({ name, run }) => {
      const key = await signingKey();
      await using provider = jwksServer(key);
      const claims = { iss: "https://id.example.com/", aud: "plant-store", exp: 32_503_680_000 };
      const bearers = [
        "a-token-of-the-greenhouse",
        await signed(key, claims),
        await signed(key, { ...claims, aud: "another" }),
        "unknown-token-0123456789",
      ];

      const post = `
        import { createApp, groupCommit, memoryStore } from "plant-store";
        const plants = groupCommit(memoryStore());
        const app = createApp({ plants, ready: async () => {}, authenticate });
        for (const token of ${JSON.stringify(bearers)}) {
          const headers = { authorization: "Bearer " + token, "content-type": "application/json" };
          const body = ${JSON.stringify(jsonOf(fern()))};
          const request = new Request("http://localhost/plants", { method: "POST", headers, body });
          console.log((await app.fetch(request)).status);
        }
        clearInterval(refreshing);
        clearInterval(refreshingKeys);
      `;
      const file = `jwts_${name.replace(" ", "_")}.ts`;
      const code = [tokens, jwts, post].join("\n");
      await project.write(file, code.replace("https://id.example.com/jwks", provider.url.href));
      const { exitCode, output } = await project.run([...run, file], {
        NODE_OPTIONS: "--disable-warning=ExperimentalWarning",
      });
      expect([exitCode, output]).toEqual([0, "200\n200\n401\n401\n"]);
    },
  );
});

describe.skipIf(skips)("the embedding guide", () => {
  test.each(NEWEST_COMPILER)(
    "has programs that TypeScript $version checks",
    async ({ command }) => {
      const all = [
        ...programs.map((code) => `${app}\n${code}`),
        lazy,
        [tokens, pages, server].join("\n"),
        [tokens, jwts].join("\n"),
      ];
      const files = all.map((_code, index) => `typed_${index + 1}.ts`);
      for (const [index, file] of files.entries()) await project.write(file, all[index] ?? "");

      const options = { module: "nodenext", skipLibCheck: true, types: ["bun-types"] };
      expect(await project.compile(command, files, options)).toEqual({ exitCode: 0, errors: [] });
    },
  );
});

/** A token that a test stores. */
const STORED = "a-token-that-is-stored";

/** Reads the files of Swagger UI, and takes signals. */
function reading(runtime: ModuleRuntime): ModuleRuntime {
  return runtime.kind === "deno" ? { ...runtime, run: [...runtime.run, "--allow-read"] } : runtime;
}

/**
 * The guide's server of one's own, with what differs between runtimes. It reads the
 * stored tokens at once, and obeys signals: SIGUSR2 stores a token, and revokes it. A plant that is
 * called "held" waits for SIGHUP.
 */
function ownServer({ kind }: ModuleRuntime): string {
  const digest = createHash("sha256").update(STORED).digest().join();
  const test = `
    let isStored = false;
    process.on("SIGUSR2", () => {
      const now = new Date();
      if (isStored) return void storedTokens.revoke("stored", now);
      isStored = true;
      const digest = new Uint8Array([${digest}]);
      void storedTokens.add({ name: "stored", digest, createdAt: now, expiresAt: null, scopes: ["write"] });
    });
    const { add } = store;
    store.add = async (batch, options) => {
      if (batch.some((plant) => plant["${TEXT}"] === "held")) {
        console.error("holds");
        await new Promise((resolve) => process.once("SIGHUP", resolve));
      }
      return add(batch, options);
    };
  `;

  const { serve, sleep = "Bun.sleep(250)" } = HOSTS[kind];
  const code = [tokens, pages, server, test].join("\n");

  return (
    code
      .replace("2_000", "20")
      // A busy machine needs longer, and no time limit is tested here.
      .replace("groupCommit(store)", `groupCommit(store, { timeoutMs: ${TEST_TIMEOUT_MS} })`)
      .replace("drain(10_000)", `drain(${TEST_TIMEOUT_MS})`)
      .replace(/const server = Bun\.serve\(.*?^\}\);$/ms, (own) => serve ?? own)
      .replace("Bun.sleep(250)", sleep)
      .replace("server.stop()", STOPS[kind] ?? "")
  );
}

const SLEEP = "new Promise((resolve) => setTimeout(resolve, 250))";

/** What the guide's server is on other runtimes. */
const HOSTS: Record<ModuleRuntime["kind"], { readonly serve?: string; readonly sleep?: string }> = {
  bun: {},
  deno: {
    serve:
      "const server = Deno.serve({ port: 3000, onListen() {} }, (request) => app.fetch(request));",
    sleep: SLEEP,
  },
  node: {
    serve: `
      import { serve } from "srvx";
      const fetch = (request) => app.fetch(request);
      const server = serve({ port: 3000, silent: true, gracefulShutdown: false, fetch });
    `,
    sleep: SLEEP,
  },
};

/** How each runtime stops, as the guide says. */
const [, ...stops] =
  table("Differences between runtimes").find(([what = ""]) => what.startsWith("stops")) ?? [];
const [bun, deno, node] = stops.map((cell) => /`(server\.\w+\(\))`/.exec(cell)?.[1]);
const STOPS = { bun, deno, node };
