import { MAX_IN_FLIGHT } from "../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl } from "../../src/database/postgres/url.ts";
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
