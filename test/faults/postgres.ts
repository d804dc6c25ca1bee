import { MAX_IN_FLIGHT } from "../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl } from "../../src/database/postgres/url.ts";
import { PlantStoreError } from "../../src/errors.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import type { Ledger, Verdict } from "../support/ledger.ts";
import { openPostgres } from "../support/postgres_database.ts";

/** The way to a database through a proxy. */
export function through(proxy: { readonly port: number }, url: string): string {
  return Object.assign(new URL(url), { port: String(proxy.port) }).href;
}

/** What a server has between its requests and the database, without the requests. */
export async function openService(url: string, timeoutMs = 20_000) {
  const database = await openPostgres(parsePostgresUrl(url));
  const commits = groupCommit(database.plants, { maxInFlight: MAX_IN_FLIGHT, timeoutMs });

  return {
    ...database,
    add: (plant: NewPlant) => commits.add(plant),
    metric: (name: string) =>
      database.metrics().find((metric) => metric.name === `plant_store_postgres_${name}`)?.value ??
      Number.NaN,
  };
}

type Service = Awaited<ReturnType<typeof openService>>;

/**
 * 32 clients that each add the next plant as soon as the one before has its outcome, until they are
 * told to stop.
 */
export function startAdding({ add }: Service, ledger: Ledger, next: () => NewPlant) {
  const end = new AbortController();
  let lastSuccess = performance.now();
  const report = {
    acknowledged: 0,
    /** The longest time without a plant acknowledged, in milliseconds. */
    gapMs: 0,
  };

  async function client(): Promise<void> {
    while (!end.signal.aborted) {
      const plant = next();
      ledger.attempt(plant);

      // Anything but an outcome or `storage_unavailable` is an internal error.
      const outcome = await add(plant).catch((error: unknown) => {
        if (error instanceof PlantStoreError && error.code === "storage_unavailable")
          return error.code;
        throw error;
      });

      if (outcome !== "added" && outcome !== "present") continue;
      ledger.acknowledge(plant);
      report.acknowledged++;
      report.gapMs = Math.max(report.gapMs, performance.now() - lastSuccess);
      lastSuccess = performance.now();
    }
  }

  const ended = Promise.all(Array.from({ length: 32 }, client));
  return {
    /** Waits for so many more to be acknowledged. */
    async more(count: number): Promise<void> {
      const limit = report.acknowledged + count;
      while (report.acknowledged < limit) await Bun.sleep(1);
    },

    async stop() {
      end.abort();
      await ended;
      return report;
    },
  };
}

/** Sends again what is unknown, and judges what the database has. */
export async function judge(url: string, ledger: Ledger): Promise<Verdict> {
  await using service = await openService(url);
  for (const plant of ledger.unknown()) {
    const outcome = await service.add(plant);
    if (outcome !== "conflict") ledger.acknowledge(plant);
  }

  const plants: NewPlant[] = [];
  for await (const page of service.pages()) plants.push(...page);
  return ledger.judgePlants(plants);
}
