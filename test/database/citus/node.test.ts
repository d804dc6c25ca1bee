import { expect, test } from "bun:test";

import { CitusNode } from "../../../src/database/citus/node.ts";
import { failover } from "../../../src/database/postgres/failover.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { fern } from "../../support/plants.ts";
import { freePort } from "../../support/program.ts";

const OPTIONS = {
  servers: failover(parsePostgresUrl("postgres://plants@127.0.0.1/plants")),
  onUnreachable() {},
  onVerdict() {},
};

test("a node is ready in the metrics until a probe fails", async () => {
  const shard = { id: "1", table: "public.plants_1", min: -(2 ** 31), node: 1 };
  const hosts = new Map([[1, [{ host: "127.0.0.1", port: freePort() }]]]);
  const verdicts: unknown[][] = [];
  const node = new CitusNode(1, {
    ...OPTIONS,
    map: () => ({ shards: [shard], hosts, schema: "public" }),
    onVerdict: (...verdict) => void verdicts.push(verdict),
  });
  const ready = { name: "plant_store_citus_node_ready", type: "gauge" };
  expect(node.metrics()).toContainEqual(expect.objectContaining({ ...ready, value: 1 }));

  const failures = [await failureOf(node), await failureOf(node)];

  expect(node.metrics()).toContainEqual(expect.objectContaining({ ...ready, value: 0 }));
  expect(node.metrics().map(({ name }) => name)).toContain("plant_store_postgres_connections");
  // Said once, however often it is asked.
  expect(verdicts).toEqual([[1, failures[0]]]);
  node.close();
});

function failureOf(node: CitusNode): Promise<unknown> {
  return node.probe(50).catch((error: unknown) => error);
}

test("a node stores no plant if the map names no server of it", async () => {
  const map = {
    shards: [{ id: "1", table: "public.plants_1", min: -(2 ** 31), node: 1 }],
    hosts: new Map(),
    schema: "public",
  };
  const node = new CitusNode(1, { ...OPTIONS, map: () => map });

  const message = "the coordinator no longer names a server for it";
  const refusal = { code: "storage_unavailable", cause: expect.objectContaining({ message }) };
  await expect(node.add([fern()], map, performance.now() + 200)).rejects.toMatchObject(refusal);
  await expect(node.probe(200)).rejects.toMatchObject(refusal);
  node.close();
});
