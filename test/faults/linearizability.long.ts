/**
 * Whether all that clients saw can be explained by one order of events, while something goes wrong
 * again and again. A single lost, changed or invented plant is noticed by its id.
 */
import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import type { NewPlant } from "../../src/plant/plant.ts";
import { fill, skipsTmpfs, smallDisk } from "../support/disks.ts";
import { mutant } from "../support/mutant.ts";
import { fern, jsonOf, TEXT } from "../support/plants.ts";
import { emptyDirectory, LONG_TEST_TIMEOUT_MS, runToEnd } from "../support/program.ts";
import { exportedPlants, record, type World } from "./linearizability.ts";
import { ACKNOWLEDGE_EARLY, REPLACE_ON_CONFLICT, SWAP_OUTCOMES } from "./mutations.ts";

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
    await Promise.all([world.recording.read(() => exportedPlants(world)), imports(world)]);
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
