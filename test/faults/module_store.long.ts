import { Database } from "bun:sqlite";
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { walFileBytes } from "../../src/database/sqlite/path.ts";
import { installPackage } from "../support/installed_package.ts";
import { INTACT, worse } from "../support/ledger.ts";
import { limited, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { skipped } from "../support/missing.ts";
import { MODULE_RUNTIMES, type ModuleRuntime, skipsRuntimes } from "../support/module_runtimes.ts";
import { mutate } from "../support/mutant.ts";
import {
  emptyDirectory,
  exitCodeOf,
  LONG_TEST_TIMEOUT_MS,
  ROOT,
  start,
} from "../support/program.ts";
import { range, scaled } from "../support/scale.ts";
import { skipsShim } from "../support/shim.ts";
import { crashes } from "./crashes.ts";
import { eachFault, onFreePort, settle, urlOf } from "./settle.ts";
import { unsynced } from "./unsynced.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** One for each driver of SQLite. Deno has that of Node. */
const NAMES = scaled(["Bun", "Node 22"], ["Bun", "Deno", "Node 22"]);
const RUNTIMES = MODULE_RUNTIMES.filter(({ name }) => NAMES.includes(name));

const skips = skipsShim() || skipsRuntimes("the module's store on a sick disk");

/** From 3.51 on SQLite notices by itself, in the other process, that a lock is gone. */
const OLD_SQLITE = "import sqlite3; assert sqlite3.sqlite_version_info < (3, 51)";
const skipsOld =
  (Bun.which("python3") === null || Bun.spawnSync(["python3", "-c", OLD_SQLITE]).exitCode !== 0) &&
  skipped(
    "a program that reads its own database file: there is no python3 with an SQLite before 3.51",
  );

describe.skipIf(skips)("the module's store in a file", () => {
  let project: Awaited<ReturnType<typeof installPackage>>;
  beforeAll(async () => void (project = await installPackage()));
  afterAll(() => project[Symbol.dispose]());

  test.each(RUNTIMES)("loses nothing by kill -9 on $name", async (runtime) => {
    const program = programOn(runtime, project.path);
    expect(await crashes({ times: CRASHES, power: false, program })).toEqual(INTACT);
  });

  test.each(RUNTIMES)("loses nothing by a power loss on $name", async (runtime) => {
    const program = programOn(runtime, project.path);
    expect(await crashes({ times: CRASHES, power: true, program })).toEqual(INTACT);
  });

  test.each(RUNTIMES)(
    "acknowledges nothing after a failed fsync on $name, and a power loss then loses nothing",
    async (runtime) => {
      const { verdict, faults } = await failedSyncs(programOn(runtime, project.path), runtime.name);
      expect(verdict).toEqual(INTACT);
      expect(faults).toBeGreaterThanOrEqual(scaled(2, 5));
    },
  );

  test.each(RUNTIMES)(
    "syncs what another process has left unsynced before it acknowledges that, on $name",
    async (runtime) => {
      const program = programOn(runtime, project.path);
      expect(await unsynced({ how: "killed", more: 0, program })).toEqual(INTACT);
      expect(await unsynced({ how: "failed", more: 8, reads: true, program })).toEqual(INTACT);
    },
  );

  // Deno asks for all permissions before it shows the lock.
  test.skipIf(skipsOld).each(RUNTIMES.filter(({ kind }) => kind !== "deno"))(
    "loses nothing on $name although the program reads its own database file, and another process opens it",
    async (runtime) => {
      const { lost, acknowledged } = await readOwnFile(runtime, scaled(10, 30));
      expect(lost).toBe(0);
      expect(acknowledged).toBeGreaterThan(0);
    },
  );

  test.skipIf(skipsOld)(
    "a program that reads its own database file loses plants without the look at the lock",
    async () => {
      // The last test: the project is gone after it.
      mutate(project.path, { file: STORE, from: "!canSee || isHeld()", to: "true" });
      const { lost } = await readOwnFile(MODULE_RUNTIMES[0] as ModuleRuntime, scaled(20, 60));
      expect(lost).toBeGreaterThan(0);
    },
  );

  /** Counts the plants that were acknowledged and are not in their file. */
  async function readOwnFile({ run, name }: ModuleRuntime, rounds: number) {
    using directory = emptyDirectory();
    const module = pathToFileURL(join(project.path, "node_modules/plant-store/dist/module/mod.js"));
    const program = join(ROOT, "test/runtimes/own_file.ts");
    const child = Bun.spawn([...run, program, directory.path, String(rounds)], {
      env: { ...process.env, MODULE: module.href },
      stderr: "inherit",
    });

    let acknowledged = 0;
    let lost = 0;
    for (const line of (await new Response(child.stdout).text()).trim().split("\n")) {
      const { path, acknowledged: ids } = JSON.parse(line) as {
        readonly path: string;
        readonly acknowledged: readonly number[];
      };
      using client = new Database(path, { readonly: true });
      const stored = new Set(client.query("SELECT id FROM plants").values().flat());
      acknowledged += ids.length;
      lost += ids.filter((id) => !stored.has(id)).length;
    }

    console.log(`its own file read on ${name}: ${acknowledged} acknowledged, ${lost} lost`);
    return { acknowledged, lost };
  }
});

/** The store as it is built, in a project that has installed it. */
const STORE = "node_modules/plant-store/dist/module/database/sqlite/mod.js";

const CRASHES = scaled(3, 10);

/** Fails the n-th fsync of a program's life for each n. The next program comes before the power loss, or after it. */
function failedSyncs(program: readonly string[], runtime: string) {
  const experiment = `the module's store on ${runtime}, a failed fsync`;
  const seed = printedSeed(experiment);

  return eachFault(experiment, range(1, 40, scaled(5, 1)), async (disk, ledger, failSync) => {
    const faults = { power: true, failSync };
    await using server = start(onFreePort(disk.server({ faults, program })));
    const url = await urlOf(server);
    const next = limited(randomPlants(randomFrom(seed + failSync), { again: 0.1 }), 60);
    if (url !== undefined)
      await startLoad({ url, connections: 8, ledger, next, endOn: ["503/5032"] }).end;

    const hasFailed = disk.isRaised("hit");
    if (!hasFailed) server.child.kill("SIGTERM");
    expect(await exitCodeOf(server.child)).toBe(hasFailed ? 1 : 0);

    // SQLite would move it into the database, and trust what the disk may not have.
    if (hasFailed && url !== undefined) expect(walFileBytes(disk.database)).toBeGreaterThan(0);

    const cached = ledger.judge(disk.database);
    if (failSync % 2 === 0) disk.losePower();
    await settle(disk.server({ faults: { power: true }, program }), ledger);
    disk.losePower();

    return worse(cached, ledger.judge(disk.database));
  });
}

/** The test app over a file, with the module as it is built. */
function programOn({ run, kind }: ModuleRuntime, project: string): readonly string[] {
  const module = pathToFileURL(join(project, "node_modules/plant-store/dist/module/mod.js"));
  const permissions = kind === "deno" ? ["--allow-read", "--allow-write"] : [];
  const file = join(ROOT, `test/runtimes/serve_${kind}.ts`);
  return ["env", `MODULE=${module.href}`, ...run, ...permissions, file];
}
