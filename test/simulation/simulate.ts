import { Pool } from "../../src/database/postgres/pool.ts";
import { plantStore } from "../../src/database/postgres/postgres_database.ts";
import { PlantStoreError } from "../../src/errors.ts";
import { type GroupCommit, groupCommit } from "../../src/group_commit/group_commit.ts";
import type { PlantStore } from "../../src/group_commit/plant_store.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { makeLedger, type Verdict } from "../support/ledger.ts";
import { randomFrom } from "../support/load.ts";
import { fern, TEXT } from "../support/plants.ts";
import { virtualTime } from "../support/virtual_time.ts";
import { DatabaseModel, type FaultRates, HOST } from "./database_model.ts";

const TIMEOUT_MS = 1_000;
const SERVERS = 2;
const LANES = 3;
const PLANTS = 150;
const IDS = 60;

/** Makes the queue of a server from the stores of its databases. */
type Spread = (
  storeOf: (plant: NewPlant) => PlantStore,
  makeQueue: (store: PlantStore) => GroupCommit,
) => GroupCommit;

/** What is simulated. */
export interface SimulationOptions {
  /** Whether PostgreSQL locks the rows that a batch is compared with. @default {true} */
  readonly locksLosers?: boolean;
  /** @default {1} */
  readonly databases?: number;
  /** @default the queue of the only database */
  readonly spread?: Spread;
}

const first: Spread = (storeOf, makeQueue) => makeQueue(storeOf(fern()));

/**
 * Servers add plants to databases that fail in every way that the seed has; in the end all is well,
 * and judged.
 */
export async function simulate(
  seed: number,
  { locksLosers = true, databases = 1, spread = first }: SimulationOptions = {},
) {
  using time = virtualTime();
  const random = randomFrom(seed);
  using _ = seededMathRandom(random);
  const models = Array.from(
    { length: databases },
    () => new DatabaseModel({ time, random, rates: ratesFrom(random), locksLosers }),
  );
  const pools: Pool[] = [];
  const servers = Array.from({ length: SERVERS }, () => server(models, pools, spread));
  const ledger = makeLedger();
  let unavailable = 0;

  /** Plants refused with 409 though nobody sent another one under their id. */
  let wrongConflicts = 0;

  /**
   * How late the latest response was, in milliseconds past the time that it has and what a
   * suspended machine took.
   */
  let latestMs = 0;

  async function add(commits: GroupCommit, plant: NewPlant): Promise<void> {
    ledger.attempt(plant);
    const began = time.now();

    try {
      const outcome = await commits.add(plant);
      if (outcome !== "conflict") ledger.acknowledge(plant);
      else if (!ledger.hasRival(plant)) wrongConflicts++;
    } catch (error) {
      if (!(error instanceof PlantStoreError) || error.code !== "storage_unavailable") throw error;
      unavailable++;
    }

    latestMs = Math.max(latestMs, time.now() - began - TIMEOUT_MS);
  }

  async function run(): Promise<Verdict> {
    const adds: Promise<void>[] = [];
    const disasters = models.map((model) => causeDisasters(model, time, random));

    for (let sent = 0; sent < PLANTS; sent++) {
      await time.sleep(random() ** 3 * 60);
      const plant = fern({
        id: BigInt(Math.floor(random() * IDS)),
        [TEXT]: random() < 0.9 ? "a" : "b",
      });
      adds.push(add(servers[Math.floor(random() * SERVERS)] as GroupCommit, plant));
    }

    await Promise.all([...adds, ...disasters]);
    // If the primary is lost now, the standby has all that was acknowledged.
    for (const model of models) {
      model.faulty = false;
      await model.failOver(1);
    }

    // What is unknown is sent again, to a server that knows nothing of it.
    const other = server(models, pools, spread);
    for (const plant of ledger.unknown()) await add(other, plant);
    return ledger.judgePlants(models.flatMap((model) => [...model.plants()]));
  }

  const verdict = await time.until(run());
  // After a jump a deadline is extended, by a second at most.
  if (time.jumpedMs() > 0) latestMs -= time.jumpedMs() + 1_000;
  const sum = (name: "retries" | "reconnections") =>
    pools.reduce((total, { counts }) => total + counts[name], 0);
  const counts = {
    acknowledged: ledger.acknowledgements(),
    unavailable,
    retries: sum("retries"),
    reconnections: sum("reconnections"),
  };

  return { verdict, wrongConflicts, latestMs, counts };
}

/** A server that spreads its plants over the databases. */
function server(models: readonly DatabaseModel[], pools: Pool[], spread: Spread): GroupCommit {
  const stores = models.map((model) => {
    const pool = new Pool({
      size: LANES,
      connect: () => model.connect(),
      current: () => HOST,
    });
    pools.push(pool);
    return plantStore(pool);
  });

  return spread(
    ({ id }) => stores[Number(id) % stores.length] as PlantStore,
    (store) => groupCommit(store, { maxInFlight: LANES, timeoutMs: TIMEOUT_MS }),
  );
}

/** One seed has many faults of a kind, another one none. */
function ratesFrom(random: () => number): FaultRates {
  const rate = (most: number) => (random() < 0.3 ? 0 : random() ** 2 * most);
  return {
    lostRequest: rate(0.2),
    lostReply: rate(0.3),
    blackHole: rate(0.1),
    aborted: rate(0.4),
    slow: rate(0.2),
  };
}

/**
 * Restarts, failovers, a standby that goes and comes, plants that others hold, and a machine that
 * was suspended.
 */
async function causeDisasters(
  model: DatabaseModel,
  time: ReturnType<typeof virtualTime>,
  random: () => number,
) {
  const count = Math.floor(random() * 6);
  for (let disaster = 0; disaster < count; disaster++) {
    await time.sleep(random() * 600);
    const kind = random();
    if (random() < 0.4) await model.hold(someIds(random), random() * 1_500);

    if (kind < 0.3) await model.restart(random() * 800);
    else if (kind < 0.5) await model.failOver(random() * 800);
    else if (kind < 0.7) model.loseStandby();
    else if (kind < 0.9) model.regainStandby();
    else time.jump(random() * 3_000);
  }
}

function someIds(random: () => number): string[] {
  return Array.from({ length: 1 + Math.floor(random() * 5) }, () =>
    String(Math.floor(random() * IDS)),
  );
}

function seededMathRandom(random: () => number): Disposable {
  const real = Math.random;
  Math.random = random;
  return { [Symbol.dispose]: () => void (Math.random = real) };
}
