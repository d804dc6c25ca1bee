import { expect, setDefaultTimeout, test } from "bun:test";

import { untilTokenIs } from "../support/client.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../support/postgres.ts";
import { LONG_TEST_TIMEOUT_MS, runToEnd } from "../support/program.ts";
import { startProxy, type TcpProxy } from "../support/tcp_proxy.ts";
import { exportedPlants, record, type World } from "./linearizability.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** A PostgreSQL behind a proxy, and its standby if there is one. */
interface Peers {
  readonly primary: PostgresCluster;
  readonly proxy: TcpProxy;
}

const ON_POSTGRES: Readonly<Record<string, (peers: Peers) => Promise<unknown>>> = {
  "terminated connections": ({ primary }) =>
    primary.run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'plant-store'",
    ),

  async "a killed database"({ primary }) {
    await primary.kill();
    await primary.restart();
  },

  async "replies that are lost"({ proxy }) {
    proxy.set("lose one reply");
  },
};

test.skipIf(skipsCluster()).each(Object.entries(ON_POSTGRES))(
  "PostgreSQL with %s is linearizable",
  async (name, fault) => {
    await using primary = await startCluster();
    await using proxy = startProxy(primary.port);
    const url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres`;
    const found = await record(name, () => fault({ primary, proxy }), { url, servers: 2 });
    expect(found).toEqual([]);
  },
);

test.skipIf(skipsCluster()).each([
  ["the primary is killed", true],
  ["the primary runs on (split brain)", false],
])("a failover to the synchronous standby is linearizable: %s", async (name, kills) => {
  await using primary = await startCluster();
  await using standby = await startCluster({ primary });
  await primary.waitForStandby();
  const hosts = `127.0.0.1:${primary.port},127.0.0.1:${standby.port}`;
  let isOver = false;

  // Reads and tokens have connections of their own, which must follow those of the plants.
  const fault = async (world: World) => {
    if (isOver) return;
    isOver = true;
    const { program, recording, servers } = world;
    const token = (change: string, at: PostgresCluster) =>
      runToEnd({ program, args: ["token", change, "phone", "--database", at.url("postgres")] });
    const phone = (await token("create", primary)).stdout.trim();
    const each = (status: 400 | 401) =>
      Promise.all(servers.map((server) => untilTokenIs(status, server.url, phone, "{}")));
    await each(400);

    if (kills) await primary.kill();
    await standby.run("SELECT pg_promote()");
    await recording.read(() => exportedPlants(world));
    expect(await token("revoke", standby)).toMatchObject({ exitCode: 0 });
    await each(401);
  };
  const url = `postgres://postgres@${hosts}/postgres`;
  const found = await record(`failover: ${name}`, fault, { url, servers: 2 });
  expect(found).toEqual([]);
});
