import { describe, expect, test } from "bun:test";

import type { DatabaseAdapter } from "../../../src/database/adapter.ts";
import { DatabaseError } from "../../../src/database/database.ts";
import { adapterOf } from "../../../src/database/databases.ts";
import { groupCommit } from "../../../src/group_commit/group_commit.ts";
import { testServingContract } from "../../support/database_contract.ts";
import { skipsCluster } from "../../support/postgres.ts";
import { withCluster } from "../../support/postgres_database.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

describe.skipIf(skipsCluster())("the adapter of a plain PostgreSQL", () => {
  const cluster = withCluster();

  testServingContract("openForServing()", async (options) => {
    return await adapterOf(await cluster().emptyDatabase()).openForServing(options);
  });

  const disposing = async (opening: Promise<AsyncDisposable>) =>
    await (await opening)[Symbol.asyncDispose]();

  // A server connects each pool before the first plant.
  test.each<[call: string, connections: number, run: (of: DatabaseAdapter) => Promise<unknown>]>([
    [
      "openForServing",
      4,
      (of) => disposing(of.openForServing({ makeQueue: (store) => groupCommit(store) })),
    ],
    ["openForWriting", 1, (of) => disposing(of.openForWriting({ create: true }))],
    ["openPlants", 1, (of) => disposing(of.openPlants())],
    ["openForListing", 1, (of) => disposing(of.openForListing())],
    ["migrate", 1, (of) => of.migrate({ dryRun: true })],
  ])("%s() makes this many connections: %d", async (_, connections, run) => {
    const direct = await cluster().emptyDatabase();
    await adapterOf(direct).migrate({ dryRun: false });
    using proxy = startProxy(cluster().port);

    await run(adapterOf(direct.replace(`:${cluster().port}`, `:${proxy.port}`)));

    expect(proxy.connections()).toBe(connections);
  });

  test.each([
    ["file:plants.db", "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE"],
    ["postgres://sesame", "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE"],
    ["postgres://nobody:sesame@127.0.0.1/postgres", ""],
  ])("a rejected user is read again, from a URL of PostgreSQL only: %s", async (url, reason) => {
    const adapter = adapterOf(`postgres://nobody:old@127.0.0.1:${cluster().port}/postgres`);
    const opening = adapter.openForServing({
      makeQueue: (store) => groupCommit(store),
      readUrl: async () => url,
    });

    const rejection = `it refuses the user: role "nobody" does not exist (28000)`;
    const message = [rejection, reason].filter(Boolean).join("; ");
    await expect(opening).rejects.toThrow(
      new DatabaseError(`Cannot open database "postgres": 127.0.0.1:${cluster().port}: ${message}`),
    );
  });
});
