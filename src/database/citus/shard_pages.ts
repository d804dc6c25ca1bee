import { INT64_MAX, INT64_MIN, type NewPlant, sizeOf } from "../../plant/plant.ts";
import { DatabaseError, PAGE_PLANTS, PAGE_TEXT } from "../database.ts";
import { PostgresFailure } from "../postgres/errors.ts";
import { durablePage } from "../postgres/pages.ts";
import type { CitusNode } from "./node.ts";
import type { NodeId, Shard, ShardMap } from "./shard_map.ts";

/**
 * Reads all plants a page at a time, ordered by id: each shard by key from its own table, on its
 * node, merged here. A query on `plants` would read the whole rest of it for each page.
 *
 * @param readMap Reads the map anew: a table that a move has left over lacks the newest plants.
 * @throws {PostgresFailure | DatabaseError} If a shard cannot be read.
 */
export async function* mergedPages(
  readMap: () => Promise<ShardMap>,
  nodeFor: (id: NodeId) => CitusNode,
): AsyncGenerator<readonly NewPlant[]> {
  const readers = (await readMap()).shards.map((shard) => shardReader(shard, readMap, nodeFor));
  await Promise.all(readers.map((reader) => reader.fill()));

  for (;;) {
    const page: NewPlant[] = [];
    let text = 0;
    while (page.length < PAGE_PLANTS && text < PAGE_TEXT) {
      const least = leastOf(readers);
      if (least === undefined) break;

      const plant = least.take();
      page.push(plant);
      text += sizeOf(plant);
      if (least.next() === undefined) await least.fill();
    }

    if (page.length === 0) return;
    yield page;
  }
}

type ShardReader = ReturnType<typeof shardReader>;

/** The reader whose next plant has the least id; `undefined` at the end. There are few readers. */
function leastOf(readers: readonly ShardReader[]): ShardReader | undefined {
  let least: ShardReader | undefined;
  let leastId = INT64_MAX;

  for (const reader of readers) {
    const id = reader.next()?.id;
    if (id === undefined || (least !== undefined && id >= leastId)) continue;
    least = reader;
    leastId = id;
  }
  return least;
}

/** Reads one shard, a page at a time, and follows it if it moves. */
function shardReader(
  shard: Shard,
  readMap: () => Promise<ShardMap>,
  nodeFor: (id: NodeId) => CitusNode,
) {
  let current = shard;
  let page: readonly NewPlant[] = [];
  let at = 0;
  /** From which id on the next page begins; `undefined` after the last one. */
  let from: bigint | undefined = INT64_MIN;

  /** A page, once the synchronous standby has it. */
  async function pageFrom(id: bigint): Promise<readonly NewPlant[]> {
    const { node, table } = current;
    try {
      return await nodeFor(node).read(durablePage(id, table));
    } catch (error) {
      // undefined_table
      if (!(error instanceof PostgresFailure) || error.code !== "42P01") throw error;
    }

    const moved = (await readMap()).shards.find((other) => other.id === shard.id);
    if (moved === undefined) throw new DatabaseError("a shard was split meanwhile: run it again");
    if (moved.node === node) throw new DatabaseError(`node ${node} lacks the table ${table}`);
    current = moved;
    return await pageFrom(id);
  }

  return {
    /** The next plant; `undefined` at the end. */
    next: () => page[at],
    take: () => page[at++] as NewPlant,

    /** Reads the next page: this one is used up. */
    async fill(): Promise<void> {
      if (from === undefined) return;
      page = await pageFrom(from);
      at = 0;
      const last = page.at(-1)?.id;
      from = last === undefined || last === INT64_MAX ? undefined : last + 1n;
    },
  };
}
