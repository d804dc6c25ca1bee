// Lanes against latency: what one plant waits for, on PostgreSQL, with commits of several speeds.
// bun test/bench/lanes.ts [seconds a run]
import { openPostgres } from "../../src/database/postgres/database.ts";
import { parsePostgresUrl } from "../../src/database/postgres/url.ts";
import type { Commit } from "../../src/group_commit/batch.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { startCluster } from "../support/postgres.ts";
import { startProxy } from "../support/tcp_proxy.ts";

const seconds = Number(process.argv[2] ?? 3);
const PLANTS_PER_SECOND = 1_000;
let id = 0n;

// In memory, so that what the disk does meanwhile counts nothing.
await using cluster = await startCluster();
console.log("| commits slower by | lanes | p50 ms | p99 ms | plants a batch | client CPU µs a plant |");
console.log("| --- | --- | --- | --- | --- | --- |");
for (const delayMs of [1, 5, 20]) for (const lanes of [1, 2, 4, 8]) await measure(delayMs, lanes);

async function measure(delayMs: number, lanes: number): Promise<void> {
  const url = new URL(await cluster.emptyDatabase());
  using proxy = startProxy(cluster.port, { delayMs });
  url.port = String(proxy.port);
  await using database = await openPostgres(parsePostgresUrl(url.href), { lanes });
  const batches: Commit[] = [];
  const onCommit = (commit: Commit) => void batches.push(commit);
  const commits = groupCommit(database.plants, { lanes, onCommit });
  // Every lane has its connection.
  await Promise.all(
    Array.from({ length: lanes * 4 }, () => database.plants.add([{ id: id++, name: "x" }], { timeoutMs: 5_000 })),
  );
  const durations: number[] = [];
  const cpu = process.cpuUsage();
  const end = performance.now() + seconds * 1_000;
  const adds: Promise<void>[] = [];
  for (let next = performance.now(); next < end; next -= Math.log(1 - Math.random()) * (1_000 / PLANTS_PER_SECOND)) {
    const wait = next - performance.now();
    if (wait > 1) await Bun.sleep(wait);
    adds.push(add());
  }
  await Promise.all(adds);
  const { user, system } = process.cpuUsage(cpu);
  durations.sort((one, other) => one - other);
  const quantile = (share: number) => durations[Math.floor(durations.length * share)]?.toFixed(1);
  const row = [`${delayMs} ms`, lanes, quantile(0.5), quantile(0.99), (durations.length / batches.length).toFixed(1)];
  console.log(`| ${[...row, ((user + system) / durations.length).toFixed(0)].join(" | ")} |`);

  async function add(): Promise<void> {
    const start = performance.now();
    await commits.add({ id: id++, name: "Monstera deliciosa", tag: "indoor" });
    durations.push(performance.now() - start);
  }
}
