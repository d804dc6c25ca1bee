/** The contract on stores that others could write on PostgreSQL, with the faults that only a real one shows. */
import { describe, expect, test } from "bun:test";

import { type ReservedSQL, SQL } from "bun";

import { pause } from "../../../src/async/timers.ts";
import { plantStoreContract } from "../../../src/database/contract/mod.ts";
import type { AddOutcome, PlantStore } from "../../../src/group_commit/plant_store.ts";
import { type NewPlant, type Plant, plantOfRow, samePlant } from "../../../src/plant/plant.ts";
import { skipsCluster } from "../../support/postgres.ts";
import { openDatabase, withCluster } from "../../support/postgres_database.ts";

/** What is wrong with a store; nothing, where it is empty. */
interface Fault {
  /** Ends a transaction. @default waits for its commit */
  readonly commit?: (commit: () => Promise<unknown>) => Promise<unknown>;
  /** Whether it inserts plants in the order of the batch. */
  readonly isUnsorted?: boolean;
}

const COMMITTED =
  "add() has committed when it resolves: the same store, opened beside it, reads the plants";
const TWINS = "add() tells nobody that a plant is present before it is committed";
const OPPOSITE = "add() of batches in opposite orders at the same time stores each plant once";
const OPPOSITE_STORES =
  "add() of batches in opposite orders, through two stores, stores each plant once";

/** The cases that a model in memory cannot stand for. */
const CASES = [COMMITTED, TWINS, OPPOSITE, OPPOSITE_STORES].map((name) => `PlantStore.${name}`);

describe.skipIf(skipsCluster())("plantStoreContract() on PostgreSQL", () => {
  const cluster = withCluster();

  test.each<[what: string, fault: Fault, failing: string[]]>([
    ["no fault", {}, []],
    [
      "a commit that is sent after the answer",
      { commit: async (commit) => void pause(50).then(commit) },
      [COMMITTED, TWINS],
    ],
    ["batches in any order", { isUnsorted: true }, [OPPOSITE, OPPOSITE_STORES]],
  ])("finds in a store with %s what is wrong", async (_what, fault, failing) => {
    await using created = await openDatabase(cluster());

    async function reopen() {
      const sql = new SQL(created.url, { max: 30 });
      return {
        plants: storeOn(sql, fault),
        read: async (id: bigint) =>
          (await sql`SELECT * FROM plants WHERE id = ${String(id)}::bigint`)[0],
        [Symbol.asyncDispose]: () => sql.close(),
      };
    }
    async function open() {
      await created.run("TRUNCATE plants");
      return reopen();
    }

    const failed: string[] = [];
    for (const { name, run } of plantStoreContract(open, reopen)) {
      if (CASES.includes(name))
        await run().catch(() => failed.push(name.replace("PlantStore.", "")));
    }
    expect(failed).toEqual(failing);
  });
});

/** A store as the embedding guide asks for it, but for its fault. */
function storeOn(sql: SQL, { commit = (run) => run(), isUnsorted = false }: Fault): PlantStore {
  async function insert(client: ReservedSQL, plants: readonly NewPlant[]): Promise<Row[]> {
    const rows = plants.map((plant) => ({ ...plant, id: String(plant.id) }));
    return client.unsafe(INSERT, [JSON.stringify(rows)]);
  }

  async function addAll(client: ReservedSQL, plants: readonly NewPlant[]) {
    await client`BEGIN`;
    const half = Math.ceil(plants.length / 2);
    const inserted = await insert(client, plants.slice(0, half));
    // Long enough for another batch to come as far: two that lock in opposite orders always meet.
    if (isUnsorted && plants.length > 1) await pause(20);
    inserted.push(...(await insert(client, plants.slice(half))));
    const ids = `{${plants.map(({ id }) => id).join()}}`;
    return { inserted, stored: await client.unsafe(SELECT, [ids]) };
  }

  return {
    async add(batch) {
      const firsts = [...new Map(batch.toReversed().map((plant) => [plant.id, plant])).values()];
      const sorted = firsts.toSorted((one, other) => (one.id < other.id ? -1 : 1));
      const client = await sql.reserve();

      try {
        const rows = await addAll(client, isUnsorted ? firsts.toReversed() : sorted);
        await commit(async () => {
          await client`COMMIT`;
          client.release();
        });
        return outcomesOf(batch, rows);
      } catch (error) {
        await client`ROLLBACK`;
        client.release();
        throw error;
      }
    },

    async probe() {
      await sql`DELETE FROM plants WHERE false`;
    },
  };
}

const INSERT = `
  INSERT INTO plants SELECT * FROM json_populate_recordset(NULL::plants, $1::text::json)
  ON CONFLICT DO NOTHING RETURNING id::text AS key`;
const SELECT = "SELECT *, id::text AS key FROM plants WHERE id = ANY ($1::text::bigint[])";

/** A row, with its id as text. */
type Row = Partial<Plant> & { readonly key: string };

function outcomesOf(
  batch: readonly NewPlant[],
  { inserted, stored }: { readonly inserted: readonly Row[]; readonly stored: readonly Row[] },
): AddOutcome[] {
  const added = new Set(inserted.map(({ key }) => key));
  const found = new Map(stored.map((row) => [row.key, plantOfRow(BigInt(row.key), row)]));

  return batch.map((plant) => {
    if (added.delete(String(plant.id))) return "added";
    const there = found.get(String(plant.id));
    return there !== undefined && samePlant(there, plant) ? "present" : "conflict";
  });
}
