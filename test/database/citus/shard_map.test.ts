import { expect, test } from "bun:test";

import { hashint8 } from "../../../src/database/citus/hash.ts";
import {
  nodesOf,
  type Shard,
  type ShardMap,
  shardMapReader,
  shardOf,
} from "../../../src/database/citus/shard_map.ts";
import type { Connection } from "../../../src/database/postgres/connection.ts";
import { range } from "../../support/scale.ts";

const INT4_MIN = -(2 ** 31);
const INT4_MAX = 2 ** 31 - 1;

/** A row of the coordinator about a shard. */
function shardRow(id: string, min: number, max: number, node: number) {
  return { id, schema: "public", table: `public.plants_${id}`, min, max, node };
}

const FIRST = shardRow("1", INT4_MIN, -1, 1);
const SECOND = shardRow("2", 0, 99, 2);
const THIRD = shardRow("3", 100, INT4_MAX, 1);
const SERVERS = [
  { node: 1, host: "db1", port: 5432 },
  { node: 2, host: "db2", port: 5432 },
];

/** A coordinator that returns these rows for its shards and its nodes. */
function coordinator(shards: readonly object[], servers: readonly object[] = SERVERS): Connection {
  const query = async (statement: string) =>
    statement.includes("pg_dist_shard") ? shards : servers;
  return { query } as unknown as Connection;
}

const mapOf = (shards: readonly Shard[]): ShardMap => ({
  shards,
  hosts: new Map(),
  schema: "",
});

test("each id belongs to the shard whose range has its hash", () => {
  const shards = [FIRST, SECOND, THIRD];
  for (const number of range(-500, 500)) {
    const id = BigInt(number) * 0x1234_5678_9abcn;
    const hash = hashint8(id);
    const expected = shards.find(({ min, max }) => min <= hash && hash <= max);
    expect(shardOf(mapOf(shards), id).id).toBe(expected?.id as string);
  }
});

test("the ends of a range belong to its shard", () => {
  for (const id of [1n, -1n, 42n]) {
    const hash = hashint8(id);
    const before = shardRow("before", INT4_MIN, hash - 1, 1);
    const here = shardRow("here", hash, hash, 2);
    const after = shardRow("after", hash + 1, INT4_MAX, 3);
    expect(shardOf(mapOf([before, here, after]), id).id).toBe("here");
  }
});

test("a single shard has every id", () => {
  const only = shardRow("1", INT4_MIN, INT4_MAX, 5);
  expect([0n, -1n, 2n ** 63n - 1n].map((id) => shardOf(mapOf([only]), id).node)).toEqual([5, 5, 5]);
});

test("nodesOf() names each node with shards once", () => {
  expect(nodesOf(mapOf([FIRST, SECOND, THIRD]))).toEqual([1, 2]);
});

test("the map has the shards, and the servers of each node, the primary first", async () => {
  const standby = { node: 2, host: "db3", port: 5433 };
  const map = await shardMapReader()(coordinator([FIRST, SECOND, THIRD], [...SERVERS, standby]), 0);

  expect(map.shards.map(({ id, node }) => [id, node])).toEqual([
    ["1", 1],
    ["2", 2],
    ["3", 1],
  ]);
  expect([...map.hosts]).toEqual([
    [1, [{ host: "db1", port: 5432 }]],
    [
      2,
      [
        { host: "db2", port: 5432 },
        { host: "db3", port: 5433 },
      ],
    ],
  ]);
});

test("a server is the same object in every map: a pool would otherwise take it for another one", async () => {
  const read = shardMapReader();
  const [one, other] = [
    await read(coordinator([FIRST, SECOND, THIRD]), 0),
    await read(coordinator([FIRST, SECOND, THIRD]), 0),
  ];
  expect(Object.is(other.hosts.get(1)?.[0], one.hosts.get(1)?.[0])).toBe(true);
});

test.each<[what: string, shards: readonly object[]]>([
  ["no shard: plants is not distributed", []],
  ["a gap", [FIRST, THIRD]],
  ["a gap at the end", [FIRST, SECOND]],
  ["two copies of a shard", [FIRST, FIRST, SECOND, THIRD]],
  ["a reference table, which has no ranges", [{ ...FIRST, min: null, max: null }]],
])("%s is refused", async (_, shards) => {
  await expect(shardMapReader()(coordinator(shards), 0)).rejects.toMatchObject({
    code: "UNSAFE",
    message: expect.stringContaining("one copy of each shard"),
  });
});
