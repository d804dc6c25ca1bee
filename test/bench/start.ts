// How long an executable takes from its start to its first 200, and whether that grows with the file.
// bun run build && bun test/bench/start.ts [--rounds 7] [--most 10000000] [EXECUTABLE ...]
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { connect } from "../../src/database/sqlite/connection.ts";
import { post, TOKEN } from "../support/client.ts";
import { emptyDirectory, ROOT, startServer } from "../support/program.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: "string", default: "7" }, most: { type: "string", default: "10000000" } },
});
const rounds = Number(values.rounds);
const sizes = [0, 1_000_000, 10_000_000].filter((plants) => plants <= Number(values.most));
const executables = positionals.length > 0 ? positionals : [join(ROOT, "dist/plant-store")];

console.log(
  "Milliseconds from the start to the first 200, median (lowest to highest). The files are in the page cache.\n",
);
console.log(`| stored plants | ${executables.join(" | ")} |`);
console.log(`| --- |${" --- |".repeat(executables.length)}`);
for (const plants of sizes) {
  using directory = emptyDirectory();
  if (plants > 0) makeDatabase(join(directory.path, "plants.db"), plants);
  const taken = executables.map((): number[] => []);
  // Interleaved, and in turned order: another process on the machine hits all of them.
  for (let round = 0; round < rounds; round++) {
    const order = [...executables.keys()];
    for (const index of round % 2 === 0 ? order : order.toReversed()) {
      taken[index]?.push(await startTime(executables[index] as string, directory.path, plants === 0));
    }
  }
  console.log(`| ${[plants, ...taken.map(describe)].join(" | ")} |`);
}

function makeDatabase(path: string, plants: number): void {
  using client = connect(path);
  client.run(
    `INSERT INTO plants (id, name, tag)
     WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids LIMIT ${plants})
     SELECT id, 'Monstera deliciosa ' || id, CASE id % 3 WHEN 0 THEN 'indoor' END FROM ids`,
  );
  client.run("PRAGMA wal_checkpoint(TRUNCATE)");
}

/** Starts a server on the database of a directory, or on a new one, and stops it after the first response. */
async function startTime(executable: string, directory: string, isNew: boolean): Promise<number> {
  using fresh = emptyDirectory();
  const cwd = isNew ? fresh.path : directory;
  const begin = performance.now();
  await using server = await startServer({ program: [resolve(executable)], cwd, env: { AUTH_TOKENS: TOKEN } });
  const response = await post(server.url, { id: -Math.ceil(Math.random() * 1e15), name: "Fern" });
  const taken = performance.now() - begin;
  if (response.status !== 200) throw new Error(`Expected 200, got ${response.status}`);
  server.child.kill("SIGTERM");
  await server.child.exited;
  return taken;
}

function describe(taken: readonly number[]): string {
  const [sorted, middle] = [taken.toSorted((one, other) => one - other), Math.floor(taken.length / 2)];
  return `${sorted[middle]?.toFixed(0)} (${sorted[0]?.toFixed(0)} to ${sorted.at(-1)?.toFixed(0)})`;
}
