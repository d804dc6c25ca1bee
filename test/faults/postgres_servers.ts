import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { type Ledger, makeLedger, type Report } from "../support/ledger.ts";
import { randomFrom, randomPlants, startLoad } from "../support/load.ts";
import type { Mutation } from "../support/mutant.ts";
import type { PostgresCluster } from "../support/postgres.ts";
import { emptyDirectory, startServer } from "../support/program.ts";
import { judge } from "./postgres.ts";

/** Commits without waiting for the disk, and does not say so: the negative control. */
export const SYNCHRONOUS_COMMIT_OFF: readonly Mutation[] = [
  { file: "src/database/postgres/session.ts", from: "ELSE 'on' END", to: "ELSE 'off' END" },
  { file: "src/database/postgres/session.ts", from: '  synchronous_commit: "off",\n', to: "" },
];

/** How an experiment is run. */
export interface ExperimentOptions {
  readonly cluster: PostgresCluster;
  readonly url: string;
  readonly seed: number;
  /** @default the executable */
  readonly program?: readonly string[];
}

/** Starts a server on a database of PostgreSQL. */
export async function startOn(
  url: string,
  { program, env = {} }: { program?: readonly string[] | undefined; env?: Record<string, string> } = {},
) {
  const directory = emptyDirectory();
  const server = await startServer({
    cwd: directory.path,
    env: { DATABASE_URL: url, AUTH_TOKENS: TOKEN, REQUEST_TIMEOUT_MS: "20000", ...env },
    ...(program && { program }),
  });
  return {
    ...server,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      directory[Symbol.dispose]();
    },
  };
}

/** Kills the database, or the server, again and again under load, and starts it again. */
export async function kills(
  victim: "database" | "server",
  times: number,
  { cluster, url, seed, program }: ExperimentOptions,
): Promise<Report> {
  const began = performance.now();
  const random = randomFrom(seed);
  const ledger = makeLedger();
  const next = randomPlants(random, { longest: 2_000 });
  for (let kill = 1; kill <= times; kill++) {
    await using server = await startOn(url, { program });
    const load = startLoad({ url: server.url, connections: 48, ledger, next });
    const enough = 50 + random() * 500;
    while (load.answered() < enough) await Bun.sleep(1);
    await Bun.sleep(random() * 30);
    if (victim === "database") {
      await cluster.kill();
      // What is acknowledged after a restart, by the same server, is to be as durable.
      await cluster.restart();
      const again = load.answered() + 100;
      while (load.answered() < again) await Bun.sleep(1);
    }
    server.child.kill("SIGKILL");
    await load.end;
  }
  const acknowledged = ledger.acknowledgements();
  const verdict = await judge(url, ledger);
  const size = `${times} kills, ${ledger.attempts()} sent, ${acknowledged} acknowledged`;
  return { experiment: `kill -9 of the ${victim} under load`, size, verdict, began };
}

/** Three servers and many plants, duplicates and conflicts among them, while the database and then a server die. */
export async function threeServers(plants: number, { cluster, url, seed }: ExperimentOptions): Promise<Report> {
  const began = performance.now();
  const ledger = makeLedger();
  const endless = randomPlants(randomFrom(seed), { ids: plants, longest: 500, again: 0.2 });
  const source = { left: plants };
  const next = () => (source.left-- > 0 ? endless() : undefined);
  await using one = await startOn(url);
  await using two = await startOn(url);
  const three = await startOn(url);
  const loads = [one, two, three].map((server) => loadOn(server.url, ledger, next));
  const until = async (share: number) => {
    while (source.left > plants * share) await Bun.sleep(1);
  };
  await until(0.7);
  await cluster.kill();
  await cluster.restart();
  await until(0.4);
  three.child.kill("SIGKILL");
  await three[Symbol.asyncDispose]();
  await using fourth = await startOn(url);
  loads.push(loadOn(fourth.url, ledger, next));
  const reports = await Promise.all(loads.map(({ end }) => end));
  const acknowledged = ledger.acknowledgements();
  const counts = reports.flatMap(({ responses }) => Object.entries(responses));
  const sum = Object.fromEntries(
    Map.groupBy(counts, ([status]) => status)
      .entries()
      .map(([status, all]) => [status, all.reduce((total, [, count]) => total + count, 0)]),
  );
  return {
    experiment: "three servers, the database and one of them killed",
    size: `${plants} plants, ${acknowledged} acknowledged, ${JSON.stringify(sum)}`,
    verdict: await judge(url, ledger),
    began,
  };
}

function loadOn(url: string, ledger: Ledger, next: () => NewPlant | undefined) {
  return startLoad({ url, connections: 32, ledger, next });
}
