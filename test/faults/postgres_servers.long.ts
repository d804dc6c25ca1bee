import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import type { NewPlant } from "../../src/plant/plant.ts";
import { post, TOKEN } from "../support/client.ts";
import { HOSTILE_PLANTS } from "../support/database_fixture.ts";
import { executable } from "../support/executable.ts";
import { INTACT, type Ledger, makeLedger, printed, type Report } from "../support/ledger.ts";
import { bodyOf, limited, newPlants, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { mutant, type Mutation } from "../support/mutant.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../support/postgres.ts";
import { withEmptyDatabase } from "../support/postgres_hooks.ts";
import { peakMemory } from "../support/proc.ts";
import { emptyDirectory, LONG_TEST_TIMEOUT_MS, runToEnd, start, startServer } from "../support/program.ts";
import { readError } from "../support/responses.ts";
import { shell } from "../support/shell.ts";
import { startProxy, type TcpProxy } from "../support/tcp_proxy.ts";
import { mountTmpfs, skipsTmpfs } from "../support/tmpfs.ts";
import { get, requireReady, requireUnavailable, send } from "./health.ts";
import { judge } from "./postgres.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster())("servers on PostgreSQL", () => {
  let cluster: PostgresCluster;
  let url: string;
  withEmptyDatabase((started, empty) => ([cluster, url] = [started, empty]));

  test("kill -9 of the database under load, again and again, loses, invents and changes no plant", async () => {
    const seed = printedSeed("kill -9 of the database");
    expect(printed(await kills("database", 20, { cluster, url, seed }))).toEqual(INTACT);
  });

  test("kill -9 of a server under load, again and again, loses, invents and changes no plant", async () => {
    const seed = printedSeed("kill -9 of a server");
    expect(printed(await kills("server", 20, { cluster, url, seed }))).toEqual(INTACT);
  });

  test("with synchronous_commit off behind the check's back, kill -9 of the database loses acknowledged plants", async () => {
    using copy = mutant(SYNCHRONOUS_COMMIT_OFF);
    await cluster.set("wal_writer_delay", "10s");
    const options = { cluster, url, seed: printedSeed("synchronous_commit=off"), program: copy.program };
    const { lost } = printed(await kills("database", 3, options));
    await cluster.set("wal_writer_delay", "200ms");
    expect(lost).toBeGreaterThan(0);
  });

  test("three servers and 50,000 plants lose, invent and change none while the database and a server die", async () => {
    const seed = printedSeed("three servers");
    expect(printed(await threeServers(50_000, { cluster, url, seed }))).toEqual(INTACT);
  });

  test.skipIf(skipsTmpfs())("a full disk is 503, and then 200 again by itself", async () => {
    using directory = emptyDirectory();
    const space = directory.path;
    expect(mountTmpfs(space, "size=2m,mode=777")).toBe(true);
    using _ = { [Symbol.dispose]: () => void Bun.spawnSync(["umount", "--lazy", space]) };
    Bun.spawnSync(["chown", "65534:65534", space]);
    await using server = await startOn(url);
    await cluster.run(`CREATE TABLESPACE small LOCATION '${space}'`, "ALTER TABLE plants SET TABLESPACE small");
    const ledger = makeLedger();
    const next = newPlants("full disk");
    const filler = join(space, "filler");
    Bun.spawnSync(["sh", "-c", `dd if=/dev/zero of=${filler} bs=64k 2>/dev/null`]);
    // Until the pages that there are have no room left.
    while ((await send(server.url, ledger, { ...next(), name: "x".repeat(4_000) })).status === 200);
    // What cannot be compressed needs a new page.
    const name = Array.from({ length: 100 }, () => crypto.randomUUID()).join("");
    expect(await readError(await post(server.url, { id: 1, name }))).toEqual({
      status: 503,
      error: 5032,
      message: "storage is full; the plant may or may not be stored, send it again later",
    });
    expect(await get(server.url, "/livez")).toBe("200");
    Bun.spawnSync(["rm", filler]);
    await requireReady(server.url, ledger, next);
    expect(await judge(url, ledger)).toEqual(INTACT);
    server.child.kill("SIGTERM");
    expect(await server.child.exited).toBe(0);
    await cluster.run("ALTER TABLE plants SET TABLESPACE pg_default", "DROP TABLESPACE small");
  });

  test.skipIf(skipsTmpfs())(
    "no room for PostgreSQL's WAL is 503, and loses no plant; with room and a restart all is well again",
    async () => {
      const began = performance.now();
      await using own = await startCluster({ settings: { min_wal_size: "32MB", max_wal_size: "32MB" } });
      const wal = join(own.data, "pg_wal");
      await own.kill();
      // Four segments: the one that is written, and the next ones.
      moveToTmpfs(wal, "64m");
      using _ = { [Symbol.dispose]: () => void Bun.spawnSync(["umount", "--lazy", wal]) };
      await own.restart();
      const ownUrl = own.url("postgres");
      await using server = await startOn(ownUrl, { env: { REQUEST_TIMEOUT_MS: "2000" } });
      const ledger = makeLedger();
      const small = newPlants("full WAL");
      await requireReady(server.url, ledger, small);
      const filler = join(wal, "filler");
      Bun.spawnSync(["sh", "-c", `dd if=/dev/zero of=${filler} bs=64k 2>/dev/null`]);
      // What cannot be compressed fills it soon.
      const name = Array.from({ length: 800 }, () => crypto.randomUUID()).join("");
      const next = () => ({ ...small(), name });
      const load = startLoad({ url: server.url, connections: 32, ledger, next, endOn: ["503/5032"] });
      const { responses } = await load.end;
      expect(Object.keys(responses).toSorted()).toEqual(["200", "503/5032"]);
      expect(await get(server.url, "/livez")).toBe("200");
      Bun.spawnSync(["rm", filler]);
      await own.kill();
      await own.restart();
      await requireReady(server.url, ledger, small);
      const size = JSON.stringify(responses);
      expect(printed({ experiment: "no room for the WAL", size, verdict: await judge(ownUrl, ledger), began })).toEqual(
        INTACT,
      );
      server.child.kill("SIGTERM");
      expect(await server.child.exited).toBe(0);
    },
  );

  test("plants move from SQLite while clients keep posting, as the README says, and none is lost", async () => {
    using directory = emptyDirectory();
    const cwd = directory.path;
    const ledger = makeLedger();
    const next = randomPlants(randomFrom(printedSeed("moving")), { longest: 500 });
    const move = async () => {
      const script = `set -o pipefail; "$@" export | "$@" import --database '${url}' -`;
      const ended = await runToEnd({ cwd, program: shell(script, "bash") });
      expect(ended).toMatchObject({ exitCode: 0, stderr: expect.stringContaining(" 0 refused") });
    };
    {
      await using old = start({ cwd, args: ["serve", "--port", "0"], env: { AUTH_TOKENS: TOKEN } });
      const [, address = ""] = await old.stderr.until(/listens on (https?:\/\/[^\s",]+)/);
      const load = startLoad({ url: address, connections: 32, ledger, next });
      while (load.answered() < 3_000) await Bun.sleep(1);
      await move();
      old.child.kill("SIGTERM");
      expect(await old.child.exited).toBe(0);
      await load.end;
    }
    await move();
    await using server = await startOn(url);
    const load = startLoad({ url: server.url, connections: 32, ledger, next });
    while (load.answered() < 3_000) await Bun.sleep(1);
    server.child.kill("SIGTERM");
    await load.end;
    expect(await judge(url, ledger)).toEqual(INTACT);
  });

  test("a million plants are exported from SQLite, imported into PostgreSQL, and come back byte for byte, in bounded memory", async () => {
    using directory = emptyDirectory();
    const [source, file] = ["source.db", "plants.ndjson"].map((name) => join(directory.path, name)) as [string, string];
    const plantStore = async (args: string[], database: string, output?: string) => {
      const began = performance.now();
      const program = Bun.spawn([...executable(), ...args], {
        cwd: directory.path,
        env: { DATABASE_URL: database },
        stdout: output === undefined ? "ignore" : Bun.file(output),
        stderr: "pipe",
      });
      const peak = (await peakMemory(program)) / 1e6;
      const stderr = await new Response(program.stderr).text();
      const seconds = (performance.now() - began) / 1_000;
      console.log(`${args[0]} ${database.split(":")[0]}: ${seconds.toFixed(1)} s, ${peak.toFixed(0)} MB`);
      // Measured: 95 to 107; an export that reads all of them at once has 836.
      expect(peak).toBeLessThan(200);
      expect({
        exitCode: program.exitCode,
        stderr: stderr.replace(/^1,000,\d+ added, 0 already there, 0 refused\n$/, ""),
      }).toEqual({
        exitCode: 0,
        stderr: "",
      });
    };
    const writer = Bun.file(file).writer();
    for (const plant of HOSTILE_PLANTS) await writer.write(`${bodyOf(plant)}\n`);
    for (let index = 0n; index < 1_000_000n; index++) {
      await writer.write(`${bodyOf({ id: 1_000n + index * 7n, name: `plant ${index}`, tag: "indoor" })}\n`);
    }
    await writer.end();
    await plantStore(["import", file], `file:${source}`);
    await plantStore(["export"], `file:${source}`, file);
    await plantStore(["import", file], url);
    const [back, again] = ["back.ndjson", "again.ndjson"].map((name) => join(directory.path, name)) as [string, string];
    await plantStore(["export"], url, back);
    await plantStore(["import", back], `file:${source}2`);
    await plantStore(["export"], `file:${source}2`, again);
    for (const other of [back, again]) expect(Bun.spawnSync(["cmp", file, other]).exitCode).toBe(0);
  });
});

/** How many a server has open, those included that it left behind. */
async function connectionsTo(cluster: PostgresCluster): Promise<number> {
  const own = "SELECT count(*)::int AS connections FROM pg_stat_activity WHERE application_name = 'plant-store'";
  return Number((await cluster.run(own))[0]?.["connections"]);
}

/** Puts a directory of a database that is not running on a small disk. */
function moveToTmpfs(directory: string, size: string): void {
  using copy = emptyDirectory();
  const cp = (from: string, to: string) => Bun.spawnSync(["cp", "-a", `${from}/.`, to]).exitCode;
  expect(cp(directory, copy.path)).toBe(0);
  expect(mountTmpfs(directory, `size=${size},mode=700,uid=65534,gid=65534`)).toBe(true);
  expect(cp(copy.path, directory)).toBe(0);
}

test.skipIf(skipsCluster())(
  "a server whose database is silent answers 503 in time, is not ready, and recovers by itself",
  async () => {
    await using primary = await startCluster();
    await using standby = await startCluster({ primary });
    await primary.waitForStandby();
    using proxy = startProxy(primary.port);
    const url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres`;
    await using server = await startOn(url, { env: { REQUEST_TIMEOUT_MS: "1000" } });
    const ledger = makeLedger();
    const next = newPlants("silence");
    for (const [name, silence, end] of [
      ["no standby", () => standby.kill(), () => standby.restart()],
      ["a black hole", async () => proxy.set("black hole"), async () => proxy.set("forward")],
      ["no database", () => primary.kill(), () => primary.restart()],
    ] as const) {
      await requireReady(server.url, ledger, next);
      await silence();
      // The first question after a while may still have the verdict from before.
      await get(server.url, "/readyz");
      await Bun.sleep(1_500);
      const began = performance.now();
      const load = startLoad({ url: server.url, connections: 64, ledger, next: limited(next, 640) });
      await requireUnavailable(server.url, ledger, next());
      const { responses } = await load.end;
      const seconds = ((performance.now() - began) / 1_000).toFixed(1);
      console.log(`| ${name} | ${JSON.stringify(responses)} in ${seconds} s |`);
      expect(Object.keys(responses)).toEqual(["503/5032"]);
      if (name !== "no database") expect(await connectionsTo(primary)).toBeLessThanOrEqual(12);
      await end();
      await requireReady(server.url, ledger, next);
    }
    expect(await judge(url, ledger)).toEqual(INTACT);
  },
);

/** How a primary is lost: by its process, its machine, or the network to it. */
const LOSSES: readonly (readonly [name: string, lose: (primary: PostgresCluster, proxy: TcpProxy) => unknown])[] = [
  ["a killed process", (primary) => primary.kill()],
  ["a dead machine", (primary) => primary.signalAll("SIGSTOP")],
  ["a silent network", (_, proxy) => proxy.set("black hole")],
];

test.skipIf(skipsCluster()).each(LOSSES)(
  "a primary that is lost under load is succeeded by its synchronous standby, without a 503 or a lost plant: %s",
  async (name, lose) => {
    for (let round = 0; round < 3; round++) {
      await using primary = await startCluster();
      await using standby = await startCluster({ primary });
      await primary.waitForStandby();
      using proxy = startProxy(primary.port);
      const url = `postgres://postgres@127.0.0.1:${proxy.port},127.0.0.1:${standby.port}/postgres`;
      await using server = await startOn(url, { env: { REQUEST_TIMEOUT_MS: "5000" } });
      const ledger = makeLedger();
      const next = randomPlants(randomFrom(printedSeed("failover")), { longest: 500 });
      const load = startLoad({ url: server.url, connections: 48, ledger, next });
      while (load.answered() < 2_000) await Bun.sleep(1);
      await lose(primary, proxy);
      const lost = performance.now();
      // What watches over a pair of databases takes its time to notice.
      await Bun.sleep(1_000);
      await standby.run("SELECT pg_promote()");
      const promoted = performance.now();
      const before = ledger.acknowledgements();
      while (ledger.acknowledgements() <= before) await Bun.sleep(1);
      const [back, gap] = [performance.now() - promoted, performance.now() - lost];
      while (ledger.acknowledgements() < before + 1_000) await Bun.sleep(1);
      server.child.kill("SIGTERM");
      const { responses } = await load.end;
      const verdict = await judge(standby.url("postgres"), ledger);
      const times = `200 again ${Math.round(back)} ms after the promotion, ${Math.round(gap)} ms after the loss`;
      console.log(`| failover | ${name} | ${times} | ${JSON.stringify(responses)} | ${JSON.stringify(verdict)} |`);
      // At the end the server is asked to stop, and refuses what comes after that.
      expect(["200", "409/4091", "503/5033"]).toEqual(expect.arrayContaining(Object.keys(responses)));
      expect(verdict).toEqual(INTACT);
    }
  },
);

/** Commits without waiting for the disk, and does not say so: the negative control. */
const SYNCHRONOUS_COMMIT_OFF: readonly Mutation[] = [
  { file: "src/database/postgres/connection.ts", from: "ELSE 'on' END", to: "ELSE 'off' END" },
  { file: "src/database/postgres/connection.ts", from: '  synchronous_commit: "off",\n', to: "" },
];

/** How an experiment is run. */
interface ExperimentOptions {
  readonly cluster: PostgresCluster;
  readonly url: string;
  readonly seed: number;
  /** @default the executable */
  readonly program?: readonly string[];
}

/** Starts a server on a database of PostgreSQL. */
async function startOn(
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
async function kills(
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
async function threeServers(plants: number, { cluster, url, seed }: ExperimentOptions): Promise<Report> {
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
