import { Database } from "bun:sqlite";
import { copyFileSync, existsSync } from "node:fs";
import { join } from "node:path";

import {
  type ColumnValue,
  type NewPlant,
  type Plant,
  plantOfRow,
  samePlant,
} from "../../src/plant/plant.ts";
import { emptyDirectory } from "./program.ts";

/** What an experiment found: all zeros and "ok", unless a promise was broken. */
export interface Verdict {
  /** Acknowledged plants that are not in the file. */
  readonly lost: number;
  /** Plants in the file that nobody sent. */
  readonly invented: number;
  /**
   * Plants in the file that differ from what was acknowledged, or from everything that was sent
   * under their id.
   */
  readonly changed: number;
  /** What `PRAGMA integrity_check` says. */
  readonly integrity: string;
}

/** The verdict that every experiment must reach. */
export const INTACT: Verdict = { lost: 0, invented: 0, changed: 0, integrity: "ok" };

/** The worse of each number, for an experiment that is judged more than once. */
export function worse(one: Verdict, other: Verdict): Verdict {
  return {
    lost: Math.max(one.lost, other.lost),
    invented: Math.max(one.invented, other.invented),
    changed: Math.max(one.changed, other.changed),
    integrity: one.integrity === "ok" ? other.integrity : one.integrity,
  };
}

/** Prints what an experiment found as a row of a table, and returns the verdict. */
export function printed(experiment: string, size: string, verdict: Verdict): Verdict {
  const { lost, invented, changed, integrity } = verdict;
  console.log(`| ${[experiment, size, lost, invented, changed, integrity].join(" | ")} |`);
  return verdict;
}

/** Remembers what was sent and what was acknowledged, and judges a database by it. */
export function makeLedger() {
  const attempted = new Map<bigint, NewPlant[]>();
  const acknowledged = new Map<bigint, NewPlant>();

  /** Two different plants were acknowledged under one id: whatever is stored, one of them is not. */
  let contradictions = 0;

  /** Judges the plants of a database that says by itself whether it is intact. */
  function judgePlants(plants: Iterable<NewPlant>): Verdict {
    let found = 0;
    let invented = 0;
    let changed = contradictions;

    for (const stored of plants) {
      const variants = attempted.get(stored.id);
      const promised = acknowledged.get(stored.id);
      if (promised !== undefined) found++;

      if (variants === undefined) invented++;
      else if (
        !(promised === undefined ? variants : [promised]).some((plant) => samePlant(plant, stored))
      )
        changed++;
    }

    return { lost: acknowledged.size - found, invented, changed, integrity: "ok" };
  }

  return {
    /** Call it before the first byte of a plant is sent. */
    attempt(plant: NewPlant): void {
      const variants = attempted.getOrInsertComputed(plant.id, () => []);
      if (!variants.some((variant) => samePlant(variant, plant))) variants.push(plant);
    },

    /** Call it for every 200. */
    acknowledge(plant: NewPlant): void {
      const known = acknowledged.get(plant.id);
      if (known !== undefined && !samePlant(known, plant)) contradictions++;
      acknowledged.set(plant.id, plant);
    },

    /** Whether a different plant was sent under the same id. */
    hasRival: (plant: NewPlant) =>
      attempted.get(plant.id)?.some((other) => !samePlant(other, plant)) ?? false,
    /** How many plants were sent. */
    attempts: () => attempted.size,
    /** How many plants were acknowledged. */
    acknowledgements: () => acknowledged.size,
    /**
     * Plants that were sent and not acknowledged: what became of them is unknown until they are
     * sent again.
     */
    unknown: () =>
      Array.from(attempted.values(), ([plant]) => plant as NewPlant).filter(
        ({ id }) => !acknowledged.has(id),
      ),
    judgePlants,
    /**
     * Judges a database and its WAL as they are now, without touching them: opening a database
     * changes its files.
     */
    judge(path: string): Verdict {
      using directory = emptyDirectory();
      const copy = join(directory.path, "copy.db");
      for (const suffix of ["", "-wal", "-journal"]) {
        if (existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix);
      }

      using database = new Database(copy, { create: true, readwrite: true, safeIntegers: true });
      const integrity = String(database.query("PRAGMA integrity_check").values()[0]?.[0]);
      return { ...judgePlants(plantsIn(database)), integrity };
    },
  };
}

/** See {@linkcode makeLedger}. */
export type Ledger = ReturnType<typeof makeLedger>;

function* plantsIn(database: Database): Generator<NewPlant> {
  // A server that was killed before its first migration has no table yet.
  if (database.query("SELECT 1 FROM sqlite_schema WHERE name = 'plants'").get() === null) return;
  type Row = { readonly id: bigint } & Readonly<Record<keyof Plant, ColumnValue>>;
  for (const row of database.query<Row, []>("SELECT * FROM plants").iterate())
    yield plantOfRow(row.id, row);
}
