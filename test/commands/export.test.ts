import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

import { eventLoopTurn } from "../../src/async/timers.ts";
import type { Io } from "../../src/commands/terminal.ts";
import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { corruptionMarker } from "../../src/database/sqlite/markers.ts";
import {
  INT64_MAX,
  INT64_MIN,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
} from "../../src/plant/plant.ts";
import { parsePlant } from "../../src/plant/plant_json.ts";
import { addPlants } from "../support/add_plants.ts";
import { damage, makeLargeDatabase } from "../support/damage.ts";
import { databaseFixture, filesIn, HOSTILE_PLANTS } from "../support/database_fixture.ts";
import { fern, jsonOf, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import { emptyDirectory, runToEnd, TEST_TIMEOUT_MS } from "../support/program.ts";
import { shell } from "../support/shell.ts";
import { exported, runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN: NewPlant = fern();

function runExport(path: string, options: Partial<Io> = {}) {
  return runCommand(["export"], { DATABASE_URL: path }, options);
}

function plantsOn(lines: string): NewPlant[] {
  return lines
    .split("\n")
    .slice(0, -1)
    .map((line) => parsePlant(new TextEncoder().encode(line)));
}

/** As many plants as fill several pages, in no order. */
const MANY = Array.from({ length: 9_001 }, (_, index) =>
  fern({ id: BigInt.asIntN(64, BigInt(index) * 0x9e3779b97f4a7c15n), [TEXT]: `plant ${index}` }),
);

function byId({ id: one }: NewPlant, { id: other }: NewPlant): number {
  return one < other ? -1 : Number(one > other);
}

test("export writes every plant exactly, whatever its texts, and leaves an unused file as it was", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  const before = readFileSync(database.path);
  expect(plantsOn(await exported(database.path))).toEqual([...HOSTILE_PLANTS]);
  expect(readFileSync(database.path).equals(before)).toBe(true);
});

test("export writes each of many plants once, ordered by id", async () => {
  // Some far from each other, some without a gap, and the ends.
  const dense = Array.from({ length: 9_001 }, (_, index) =>
    fern({ id: -index, [TEXT]: `dense ${index}` }),
  );
  const ends = [INT64_MIN, INT64_MAX].map((id) => fern({ id, [TEXT]: "end" }));
  const plants = [...MANY.slice(1), ...dense, ...ends];
  using database = await databaseFixture(plants);

  expect(plantsOn(await exported(database.path))).toEqual(plants.toSorted(byId));
});

test("export --format csv quotes as RFC 4180 says, and tells an absent tag from an empty one", async () => {
  const header = `${["id", ...PLANT_FIELDS].join(",")}\r\n`;
  using empty = await databaseFixture([]);
  expect(await exported(empty.path, "--format", "csv")).toBe(header);

  using database = await databaseFixture([
    fern({ id: INT64_MIN }),
    fern({ id: -1n, [TEXT]: "", [OPTIONAL_TEXT]: "" }),
    fern({ [TEXT]: "a,b", [OPTIONAL_TEXT]: 'the "best"' }),
    fern({ id: 2n, [TEXT]: "two\nlines", [OPTIONAL_TEXT]: "a\rb" }),
    fern({ id: 3n, [TEXT]: " 🌱 ", [OPTIONAL_TEXT]: "=1+1" }),
    fern({ id: INT64_MAX, [TEXT]: '"' }),
  ]);

  expect(await exported(database.path, "--format", "csv")).toBe(
    [
      header,
      csvLine(INT64_MIN, "Fern"),
      csvLine(-1n, '""', '""'),
      csvLine(1n, '"a,b"', '"the ""best"""'),
      csvLine(2n, '"two\nlines"', '"a\rb"'),
      csvLine(3n, " 🌱 ", "=1+1"),
      csvLine(INT64_MAX, '""""'),
    ].join(""),
  );
});

/** A line of a fern with these texts, as they are written. */
function csvLine(id: bigint, text: string, optional = ""): string {
  const texts: Partial<Plant> = { [TEXT]: text, [OPTIONAL_TEXT]: optional };
  const values = PLANT_FIELDS.map((field) => texts[field] ?? fern()[field] ?? "");
  return `${[id, ...values].join(",")}\r\n`;
}

test("export holds a few plants at a time, and fewer of long ones", async () => {
  const long = Array.from({ length: 40 }, (_, index) =>
    fern({ id: index, [TEXT]: "x".repeat(60_000) }),
  );
  using database = await databaseFixture([
    ...long,
    ...MANY.map((plant) => ({ ...plant, id: plant.id | (1n << 40n) })),
  ]);
  const chunks: string[] = [];

  await runExport(database.path, { write: async (chunk) => void chunks.push(chunk) });
  expect(Math.max(...chunks.map(({ length }) => length))).toBeLessThan(1_200_000);
  expect(Math.max(...chunks.map((chunk) => chunk.split("\n").length))).toBeLessThan(5_000);
});

test("export waits for its reader before it reads on", async () => {
  using database = await databaseFixture(MANY);
  const waiting: (() => void)[] = [];
  let written = 0;
  const write = () => new Promise<void>((taken) => (written++, waiting.push(taken)));
  const end = runExport(database.path, { write });

  for (let taken = 0; taken < 3; taken++) {
    while (waiting.length === 0) await eventLoopTurn();
    // Whatever could run by itself does, within some turns of the event loop.
    for (let turn = 0; turn < 5; turn++) await eventLoopTurn();
    expect(written).toBe(taken + 1);
    waiting.shift()?.();
  }

  expect(await end).toMatchObject({ exitCode: 0 });
});

test("a slow reader of an export delays neither a writer nor its checkpoints", async () => {
  using database = await databaseFixture(MANY);
  using client = connect(database.path, { busyTimeoutMs: 0 });
  const add = addPlants(client);
  const checkpoints: unknown[] = [];

  const write = async () => {
    add([fern({ id: 1n << 62n, [TEXT]: `${checkpoints.length}`.repeat(9) })]);
    checkpoints.push(client.query("PRAGMA wal_checkpoint(TRUNCATE)").values());
  };

  expect(await runExport(database.path, { write })).toMatchObject({ exitCode: 0 });
  expect(checkpoints.length).toBeGreaterThan(2);
  expect(checkpoints).toEqual(checkpoints.map(() => [[0n, 0n, 0n]]));
});

test("export has every plant that was stored before it began while others are added", async () => {
  using database = await databaseFixture(MANY);
  using client = connect(database.path);
  const add = addPlants(client);
  const chunks: string[] = [];

  const write = async (chunk: string) => {
    chunks.push(chunk);
    // One here and there: before what was read last, behind it, and between.
    const ids = [INT64_MIN, INT64_MAX, 0n, 1n << 61n, -(1n << 61n)].map((id) =>
      BigInt.asIntN(64, id + BigInt(chunks.length)),
    );
    add(ids.map((id) => fern({ id, [TEXT]: "later" })));
  };

  await runExport(database.path, { write });
  const plants = plantsOn(chunks.join(""));
  expect(plants.filter((plant) => plant[TEXT] !== "later")).toEqual(MANY.toSorted(byId));
  expect(plants).toEqual(plants.toSorted(byId));
});

test("export includes what a killed server left in the WAL, and leaves it there", async () => {
  using database = await databaseFixture([]);
  using directory = emptyDirectory();
  using client = connect(database.path);

  addPlants(client)([FERN]);
  const copy = directory.at("plants.db");
  for (const suffix of ["", "-wal"])
    writeFileSync(copy + suffix, readFileSync(database.path + suffix));

  const before = ["", "-wal"].map((suffix) => readFileSync(copy + suffix));
  expect(await exported(copy)).toBe(`${jsonOf(fern())}\n`);
  expect(["", "-wal"].map((suffix) => readFileSync(copy + suffix))).toEqual(before);
});

/** As a server leaves a new file for some milliseconds, or one that is killed then. */
function beganWal(path: string): void {
  lostWal(path);
  writeFileSync(`${path}-wal`, "");
}

/** SQLite removes the empty WAL as it closes the file, which stays in WAL mode. */
function lostWal(path: string): void {
  using client = new Database(path);
  client.run("PRAGMA journal_mode = WAL");
}

const EMPTY = "it is empty: no plant-store has created its tables yet";

const refused: [string, (path: string) => void, string][] = [
  ["a file that is not there", () => {}, "there is no such file"],
  ["a directory", (path) => mkdirSync(path), "it is not a file"],
  ["a file that another process begins to make", (path) => writeFileSync(path, ""), EMPTY],
  ["a file that has its WAL, and no tables yet", beganWal, EMPTY],
  ["a file in WAL mode without a WAL, and without tables", lostWal, "its WAL is missing"],
];

test.each(refused)("export refuses %s, and writes and makes nothing", async (_what, make, says) => {
  using directory = emptyDirectory();
  const path = directory.at("some.db");
  make(path);
  const before = filesIn(directory.path);
  expect(await runCommand(["export", "--format", "csv"], { DATABASE_URL: path })).toEqual({
    exitCode: 1,
    stdout: "",
    stderr: expect.stringContaining(`Cannot open database "${path}": ${says}`),
  });
  expect(filesIn(directory.path)).toEqual(before);
});

test.each(["before", "meanwhile"])(
  "export of a file marked as corrupt %s writes what can be read, and fails",
  async (when) => {
    using database = await databaseFixture([FERN]);
    const marker = corruptionMarker(database.path);
    if (when === "before") marker.write("found");
    let written = "";
    const write = async (chunk: string) => ((written += chunk), marker.write("found"));
    const stderr = `Database "${database.path}" is corrupt (found): read 1 plants; some may be missing\n`;

    expect(await runExport(database.path, { write })).toEqual({ exitCode: 1, stdout: "", stderr });
    expect(written).toBe(`${jsonOf(fern())}\n`);
  },
);

/** The ids around each gap in an export of a damaged file: of the last plant before it, and of the next. */
function gapsIn(whole: string, rest: string): string[] {
  const kept = new Set(rest.split("\n"));
  const gaps: string[] = [];
  let before: NewPlant | undefined;
  let isGap = false;

  for (const line of whole.split("\n").slice(0, -1)) {
    if (!kept.has(line)) {
      isGap = true;
      continue;
    }

    const [plant] = plantsOn(`${line}\n`);
    if (isGap)
      gaps.push(before ? `between ids ${before.id} and ${plant?.id}` : `below id ${plant?.id}`);
    [before, isGap] = [plant, false];
  }

  return isGap ? [...gaps, `above id ${before?.id}`] : gaps;
}

test.each([
  ["a zeroed page in the middle", 1, "database disk image is malformed"],
  ["zeroed pages at both ends and in the middle", 3, "database disk image is malformed"],
  ["a page in the place of another", 1, "plants: id \\d+ is out of order"],
] as const)(
  "export of a file with %s writes all other plants, and names the ids between which some are missing",
  async (what, count, finding) => {
    using directory = emptyDirectory();
    const path = directory.at("plants.db");
    makeLargeDatabase(path, 20_000);
    const whole = await exported(path);
    damage(path, what);

    const { exitCode, stdout, stderr } = await runExport(path);

    const plants = plantsOn(stdout);
    // In their order, and as they were.
    const kept = new Set(stdout.split("\n"));
    expect(stdout).toBe(whole.replace(/.*\n/g, (line) => (kept.has(line.trimEnd()) ? line : "")));
    // A page holds about a hundred.
    expect(plants.length).toBeGreaterThan(20_000 - 150 * count);

    const gaps = gapsIn(whole, stdout);
    expect(gaps).toHaveLength(count);
    const missing = `read ${plants.length} plants; some are missing ${gaps.join(", ")}`;
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(
      new RegExp(`^Database "${RegExp.escape(path)}" is corrupt \\(${finding}\\): ${missing}\n$`),
    );
  },
);

const STOPS: [when: string, until: (stop: () => void) => Partial<Io>][] = [
  [
    "although nobody takes what it wrote",
    (stop) => ({ write: () => (stop(), new Promise<void>(() => {})) }),
  ],
  ["between two pieces, although a file takes each at once", (stop) => (setImmediate(stop), {})],
];

test.each(STOPS)("export that is stopped ends at once, %s, and says so", async (_when, until) => {
  using database = await databaseFixture(MANY);
  const stop = new AbortController();
  const run = await runExport(database.path, { stop: stop.signal, ...until(() => stop.abort()) });
  expect(run).toMatchObject({ exitCode: 1, stderr: "Stopped: the export is incomplete\n" });
});

test.each(["export", "check", "token create new", "--help"])(
  "%s ends quietly with exit code 1 if nothing reads its output",
  async (args) => {
    using database = await databaseFixture([FERN]);
    // The reader has ended before the program writes: `yes` goes on until then.
    const script = '{ yes 2> /dev/null; "$@"; echo "exit code $?" >&2; } | true';
    const run = await runToEnd({
      program: shell(script),
      args: args.split(" "),
      cwd: database.directory,
    });
    expect(run).toMatchObject({ stdout: "", stderr: "exit code 1\n" });

    const { stdout } = await runToEnd({
      args: ["token", "list", "--json"],
      cwd: database.directory,
    });
    expect(stdout).toBe("[]\n");
  },
);
