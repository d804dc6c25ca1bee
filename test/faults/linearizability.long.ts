/**
 * Whether all that clients saw can be explained by one order of events, while something goes wrong
 * again and again. A single lost, changed or invented plant is noticed by its id.
 */
import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import type { NewPlant } from "../../src/plant/plant.ts";
import { untilTokenIs } from "../support/client.ts";
import { mutant } from "../support/mutant.ts";
import { fern, jsonOf, TEXT } from "../support/plants.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../support/postgres.ts";
import { emptyDirectory, LONG_TEST_TIMEOUT_MS, runToEnd } from "../support/program.ts";
import { startProxy, type TcpProxy } from "../support/tcp_proxy.ts";
import { BETWEEN, exported, record, type World } from "./linearizability.ts";
import {
  ACKNOWLEDGE_EARLY,
  REPLACE_ON_CONFLICT,
  SWAP_OUTCOMES,
  SYNCHRONOUS_COMMIT_OFF,
} from "./mutations.ts";
import { fill, skipsTmpfs, smallDisk } from "./settle.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** The file of a SQLite database in a directory that lasts as long as the scope. */
function sqliteFile() {
  const directory = emptyDirectory();
  return { ...directory, url: `file:${join(directory.path, "plants.db")}` };
}

const ON_SQLITE: Readonly<Record<string, (world: World) => Promise<unknown>>> = {
  "kill -9": ({ replace }) => replace(),

  async "a stopped process"({ servers, random }) {
    servers[0]?.child.kill("SIGSTOP");
    await Bun.sleep(200 + 1_000 * random());
    servers[0]?.child.kill("SIGCONT");
  },

  async "a lock of another process"({ url, random }) {
    using database = new Database(url.slice("file:".length));
    database.run("PRAGMA busy_timeout = 10000");
    database.run("BEGIN IMMEDIATE");
    await Bun.sleep(200 + 1_200 * random());
    database.run("COMMIT");
  },

  async "commands beside the server"(world) {
    await Promise.all([world.recording.read(() => exported(world)), imports(world)]);
  },
};

/** Imports rivals of what was sent last, and records each line as an add. */
async function imports({ url, program, recording }: World): Promise<void> {
  using directory = emptyDirectory();
  const plants = recording.history
    .slice(-20)
    .map(({ id }): NewPlant => fern({ id, [TEXT]: "imported" }));
  const file = join(directory.path, "plants.ndjson");
  writeFileSync(file, plants.map((plant) => `${jsonOf(plant)}\n`).join(""));

  const invoked = performance.now();
  const { exitCode } = await runToEnd({ program, args: ["import", file, "--database", url] });
  // It says which lines were refused, in words for people: only a whole success is evidence.
  const outcome = exitCode === 0 ? "stored" : "unknown";
  const returned = exitCode === 0 ? performance.now() : Number.POSITIVE_INFINITY;
  for (const plant of plants)
    recording.history.push({ id: plant.id, plant, outcome, invoked, returned });
}

test.each(Object.entries(ON_SQLITE))("SQLite under %s is linearizable", async (name, fault) => {
  using file = sqliteFile();
  expect(await record(name, fault, file)).toEqual([]);
});

test("two servers on one file, one of them killed again and again, are linearizable", async () => {
  using file = sqliteFile();
  const kill = ({ replace, random }: World) => replace(Math.floor(2 * random()));
  expect(await record("two servers", kill, { ...file, servers: 2 })).toEqual([]);
});

test.skipIf(skipsTmpfs())(
  "SQLite on a disk that is full now and then is linearizable",
  async () => {
    using directory = emptyDirectory();
    using _ = smallDisk(directory.path, "size=3m");
    const filler = join(directory.path, "filler");

    const fault = async () => {
      fill(filler);
      await Bun.sleep(500);
      await Bun.file(filler).delete();
    };
    const url = `file:${join(directory.path, "plants.db")}`;
    expect(await record("a full disk", fault, { url })).toEqual([]);
  },
);

test.each([
  ["a 200 before the commit", ACKNOWLEDGE_EARLY],
  ["another plant under a taken id", REPLACE_ON_CONFLICT],
  ["outcomes swapped inside a batch", SWAP_OUTCOMES],
])("%s is noticed", async (name, mutations) => {
  using copy = mutant(mutations);
  using file = sqliteFile();
  const { program } = copy;
  const found = await record(`control: ${name}`, ({ replace }) => replace(), { ...file, program });
  expect(found).not.toEqual([]);
});

/** A PostgreSQL behind a proxy, and its standby if there is one. */
interface Peers {
  readonly primary: PostgresCluster;
  readonly proxy: TcpProxy;
}

const ON_POSTGRES: Readonly<Record<string, (peers: Peers) => Promise<unknown>>> = {
  "terminated connections": ({ primary }) =>
    primary.run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'plant-store'",
    ),

  async "a killed database"({ primary }) {
    await primary.kill();
    await primary.restart();
  },

  async "replies that are lost"({ proxy }) {
    proxy.set("lose one reply");
  },
};

test.skipIf(skipsCluster()).each(Object.entries(ON_POSTGRES))(
  "PostgreSQL with %s is linearizable",
  async (name, fault) => {
    await using primary = await startCluster();
    await using proxy = startProxy(primary.port);
    const url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres`;
    const found = await record(name, () => fault({ primary, proxy }), { url, servers: 2 });
    expect(found).toEqual([]);
  },
);

test.skipIf(skipsCluster()).each([
  ["the primary is killed", true],
  ["the primary runs on (split brain)", false],
])("a failover to the synchronous standby is linearizable: %s", async (name, kills) => {
  await using primary = await startCluster();
  await using standby = await startCluster({ primary });
  await primary.waitForStandby();
  const hosts = `127.0.0.1:${primary.port},127.0.0.1:${standby.port}`;
  let isOver = false;

  // Reads and tokens have connections of their own, which must follow those of the plants.
  const fault = async (world: World) => {
    if (isOver) return;
    isOver = true;
    const { program, recording, servers } = world;
    const token = (change: string, at: PostgresCluster) =>
      runToEnd({ program, args: ["token", change, "phone", "--database", at.url("postgres")] });
    const phone = (await token("create", primary)).stdout.trim();
    const each = (status: 400 | 401) =>
      Promise.all(servers.map((server) => untilTokenIs(status, server.url, phone, "{}")));
    await each(400);

    if (kills) await primary.kill();
    await standby.run("SELECT pg_promote()");
    await recording.read(() => exported(world));
    expect(await token("revoke", standby)).toMatchObject({ exitCode: 0 });
    await each(401);
  };
  const url = `postgres://postgres@${hosts}/postgres`;
  const found = await record(`failover: ${name}`, fault, { url, servers: 2 });
  expect(found).toEqual([]);
});

test.skipIf(skipsCluster())("commits that do not wait for the disk are noticed", async () => {
  await using primary = await startCluster();
  using copy = mutant(SYNCHRONOUS_COMMIT_OFF);
  const { program } = copy;

  const fault = async ({ recording }: World) => {
    await primary.set("wal_writer_delay", "10s");
    await recording.more(BETWEEN);
    await primary.kill();
    await primary.restart();
  };
  const url = primary.url("postgres");
  expect(await record("control: synchronous_commit off", fault, { url, program })).not.toEqual([]);
});
