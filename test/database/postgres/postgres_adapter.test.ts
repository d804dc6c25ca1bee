import { describe, expect, test } from "bun:test";
import { basename, dirname } from "node:path";

import type { DatabaseAdapter } from "../../../src/database/adapter.ts";
import { adapterOf } from "../../../src/database/location.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { groupCommit } from "../../../src/group_commit/group_commit.ts";
import { testServingContract } from "../../support/database_contract.ts";
import { skipsCluster } from "../../support/postgres.ts";
import { withCluster } from "../../support/postgres_database.ts";
import { ROOT } from "../../support/program.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

describe.skipIf(skipsCluster())("the adapter of a plain PostgreSQL", () => {
  const cluster = withCluster();

  testServingContract("openForServing()", async (options) => {
    const url = parsePostgresUrl(await cluster().emptyDatabase());
    const adapter = await adapterOf({ adapter: "postgres", url });
    return await adapter.openForServing(options);
  });

  const disposing = async (opening: Promise<AsyncDisposable>) =>
    await (await opening)[Symbol.asyncDispose]();

  // A server connects each pool before the first plant.
  test.each<[call: string, connections: number, run: (of: DatabaseAdapter) => Promise<unknown>]>([
    [
      "openForServing",
      4,
      (of) => disposing(of.openForServing({ gather: (store) => groupCommit(store) })),
    ],
    ["openForWriting", 1, (of) => disposing(of.openForWriting({ create: true }))],
    ["openPlants", 1, (of) => disposing(of.openPlants())],
    ["openForListing", 1, (of) => disposing(of.openForListing())],
    ["migrate", 1, (of) => of.migrate({ dryRun: true })],
  ])("%s() makes this many connections: %d", async (_, connections, run) => {
    const direct = await cluster().emptyDatabase();
    await (await adapterAt(direct)).migrate({ dryRun: false });
    using proxy = startProxy(cluster().port);

    await run(await adapterAt(direct.replace(`:${cluster().port}`, `:${proxy.port}`)));

    expect(proxy.connections()).toBe(connections);
  });

  test("loads no file of Citus", async () => {
    const url = await cluster().emptyDatabase();
    const child = Bun.spawn([process.execPath, "-e", LOADING, ROOT, url], { stdout: "pipe" });

    const loaded = (await new Response(child.stdout).text()).trim().split("\n");
    const rooms = new Set(loaded.map((path) => basename(dirname(path))));
    expect([...rooms].toSorted()).toEqual(["database", "postgres", "sqlite"]);
  });

  async function adapterAt(url: string): Promise<DatabaseAdapter> {
    return await adapterOf({ adapter: "postgres", url: parsePostgresUrl(url) });
  }
});

/** Opens a database as a server does, and prints which files of `src/database/` that has loaded. */
const LOADING = `
  import { readFileSync } from "node:fs";
  const [root, url] = process.argv.slice(1);
  Bun.plugin({
    name: "loaded",
    setup: ({ onLoad }) =>
      void onLoad({ filter: /\\/src\\/database\\/.*\\.ts$/ }, ({ path }) => {
        console.log(path);
        return { contents: readFileSync(path, "utf8"), loader: "ts" };
      }),
  });
  const { adapterOf } = await import(root + "/src/database/location.ts");
  const { parsePostgresUrl } = await import(root + "/src/database/postgres/url.ts");
  const { groupCommit } = await import(root + "/src/group_commit/group_commit.ts");
  const adapter = await adapterOf({ adapter: "postgres", url: parsePostgresUrl(url) });
  const database = await adapter.openForServing({
    create: true,
    gather: (store) => groupCommit(store),
  });
  await database[Symbol.asyncDispose]();
`;
