import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { post } from "../support/client.ts";
import { guideProject } from "../support/guide_project.ts";
import { blocks } from "../support/guides.ts";
import { connect, postBytes } from "../support/load.ts";
import { NEWEST_COMPILER } from "../support/module_runtimes.ts";
import { fern, ivy, moss, OPTIONAL_TEXT, returned } from "../support/plants.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { readError, readPlant } from "../support/responses.ts";
import { bundleWorker, skipsWorkerd, startWorker } from "../support/workerd.ts";

// The programs of the guide for Cloudflare Workers, with the packed package.
setDefaultTimeout(TEST_TIMEOUT_MS);

const TOKEN = "a-token-of-the-greenhouse";
const [d1Store = "", d1Worker = ""] = blocks("D1", "ts");
const [objectStore = "", objectWorker = ""] = blocks("A Durable Object", "ts");
const [table = ""] = blocks("D1", "sql");

/** A Worker that runs the contract on a store, and responds with what failed. */
const D1_CONTRACT = `
  import { env } from "cloudflare:workers";
  import { plantStoreContract } from "plant-store/testing";
  import { d1Store } from "./d1_store.ts";

  async function reopen() {
    const select = env.DB.prepare("SELECT fields FROM plants WHERE id = CAST(? AS INTEGER)");
    const read = async (id) => {
      const row = await select.bind(String(id)).first();
      return row === null ? undefined : JSON.parse(row.fields);
    };
    return { plants: d1Store(env.DB), read, async [Symbol.asyncDispose]() {} };
  }
  async function open() {
    await env.DB.exec("DELETE FROM plants");
    return reopen();
  }
  export default { fetch: () => outcomes(plantStoreContract(open, reopen)) };
`;
const OBJECT_CONTRACT = `
  import { DurableObject, env } from "cloudflare:workers";
  import { plantStoreContract } from "plant-store/testing";
  import { objectStore } from "./object_store.ts";

  export class Garden extends DurableObject {
    fetch() {
      const { storage } = this.ctx;
      async function reopen() {
        const select = "SELECT fields FROM plants WHERE id = CAST(? AS INTEGER)";
        const read = async (id) => {
          const [row] = storage.sql.exec(select, String(id)).toArray();
          return row === undefined ? undefined : JSON.parse(row.fields);
        };
        return { plants: objectStore(storage), read, async [Symbol.asyncDispose]() {} };
      }
      async function open() {
        const opened = await reopen();
        storage.sql.exec("DELETE FROM plants");
        return opened;
      }
      return outcomes(plantStoreContract(open, reopen));
    }
  }
  export default { fetch: (request) => env.GARDEN.getByName("garden").fetch(request) };
`;
const OUTCOMES = `
  async function outcomes(cases) {
    const failed = [];
    for (const { name, run } of cases)
      await run().catch((error) => failed.push(name + ": " + error));
    return Response.json({ cases: cases.length, failed });
  }
`;

const STORES = [
  {
    name: "D1",
    folder: "d1",
    files: { "d1_store.ts": d1Store, "worker.ts": d1Worker },
    contract: D1_CONTRACT,
  },
  {
    name: "a Durable Object",
    folder: "object",
    files: { "object_store.ts": objectStore, "worker.ts": objectWorker },
    contract: OBJECT_CONTRACT,
  },
];

describe.skipIf(skipsWorkerd("the programs for Cloudflare Workers"))(
  "on Cloudflare Workers",
  () => {
    let project: Awaited<ReturnType<typeof guideProject>>;
    beforeAll(async () => {
      project = await guideProject();
      for (const { folder, files, contract } of STORES) {
        for (const [name, code] of Object.entries(files))
          await project.write(`${folder}/${name}`, code);
        await project.write(`${folder}/contract.ts`, `${contract}\n${OUTCOMES}`);
      }
    });
    afterAll(() => project?.[Symbol.dispose]());

    async function serve(folder: string, file: string) {
      const worker = await bundleWorker(
        join(project.path, folder, file),
        join(project.path, "out", folder),
      );
      return startWorker(worker, { TOKEN, D1_TABLE: table.trim() });
    }

    test.each(STORES)("the store in $name holds the contract", async ({ folder }) => {
      await using server = await serve(folder, "contract.ts");

      const response = await fetch(server.url);
      expect(await response.json()).toEqual({ cases: expect.any(Number), failed: [] });
    });

    test.each(STORES)(
      "the Worker over $name responds as the API guide says",
      async ({ folder }) => {
        await using server = await serve(folder, "worker.ts");
        const send = (plant: object, token: string | null = TOKEN) =>
          post(server.url, plant, { token });
        const plant = fern({ [OPTIONAL_TEXT]: "indoor" });
        const kept = { status: 200, body: returned(plant) };
        expect(await readPlant(await send(plant))).toEqual(kept);
        expect(await readPlant(await send(plant))).toEqual(kept);
        expect(await readError(await send(ivy()))).toMatchObject({ error: 4091 });
        expect(await readError(await send({ id: 2 }))).toMatchObject({ error: 4002 });

        // In one piece: workerd resets a connection whose body comes after the response.
        const connection = await connect(server.url);
        const refused = await connection.request(postBytes(fern(), "another-token"));
        connection.close("reset");
        expect(refused).toMatchObject({
          status: 401,
          body: expect.stringContaining('"error":4012'),
        });

        expect((await fetch(`${server.url}/livez`)).status).toBe(200);
        expect((await fetch(`${server.url}/readyz`)).status).toBe(200);

        const all = Array.from({ length: 50 }, (_, index) => send(moss({ id: 100 + index })));
        const statuses = (await Promise.all(all)).map(({ status }) => status);
        expect(statuses).toEqual(all.map(() => 200));

        const probes = all.map(() => fetch(`${server.url}/readyz`));
        const ready = (await Promise.all(probes)).map(({ status }) => status);
        expect(ready).toEqual(all.map(() => 200));
      },
    );

    test.each(NEWEST_COMPILER)("TypeScript $version checks the programs", async ({ command }) => {
      const environment = `
      declare namespace Cloudflare {
        interface Env {
          readonly DB: D1Database;
          readonly GARDEN: DurableObjectNamespace<import("./object/worker.ts").Garden>;
          readonly TOKEN: string;
        }
      }`;
      await project.write("worker-configuration.d.ts", environment);

      const programs = STORES.flatMap(({ folder, files }) =>
        Object.keys(files).map((name) => `${folder}/${name}`),
      );
      const options = {
        module: "nodenext",
        skipLibCheck: true,
        allowImportingTsExtensions: true,
        types: ["@cloudflare/workers-types"],
      };
      const files = ["worker-configuration.d.ts", ...programs];
      expect(await project.compile(command, files, options)).toEqual({ exitCode: 0, errors: [] });
    });
  },
);
