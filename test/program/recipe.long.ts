import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, rmSync } from "node:fs";
import { join, relative } from "node:path";

import { staticTokens } from "../../src/auth/static_tokens.ts";
import type * as Client from "../../src/http/client.ts";
import type * as PlantStore from "../../src/mod.ts";
import { bearer, post, postPlant, TOKEN } from "../support/client.ts";
import {
  type ChangeStep,
  failureOnTerminal,
  GUIDES_TEST,
  MIGRATIONS_TEST,
  REQUIRING,
  type Step,
  STEPS,
} from "../support/field_steps.ts";
import { blocks, cellsOf, section, table } from "../support/guides.ts";
import {
  failingTests,
  failuresIn,
  failuresOfOk,
  linkPackages,
  mutate,
  repositoryCopy,
} from "../support/mutant.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import {
  emptyDirectory,
  FROM_SOURCE,
  LONG_TEST_TIMEOUT_MS,
  ROOT,
  runToEnd,
  startServer,
} from "../support/program.ts";
import { scaled } from "../support/scale.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

describe("Add a field", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());

  beforeAll(async () => {
    linkPackages(copy.path);
    await addField(copy.path);
  });

  function undo({ file, insert }: Step): void {
    for (const [before, added] of Object.entries(insert))
      mutate(copy.path, { file, from: before + added, to: before });
  }

  test("the guide lists the files of these steps, in their order", () => {
    const files = STEPS.map(({ file }) => relative("src", file));
    const listed = table("Add a field").map(([file = ""]) => file.replaceAll("`", ""));
    expect(listed.filter((file) => file !== "../drizzle/")).toEqual([...new Set(files)]);
  });

  test("the program reads a file that is older than the field, and adds the column when it writes", async () => {
    using home = emptyDirectory();
    const withField = [process.execPath, copy.at("src/main.ts")];
    const run = (program: readonly string[], ...args: string[]) =>
      runToEnd({ program, args, cwd: home.path });
    const fern = '{"id":1,"name":"Fern"}\n';
    const ivy = '{"id":2,"name":"Ivy","tag":"indoor","light":"bright"}\n';

    await Bun.write(home.at("old.ndjson"), fern);
    expect(await run(FROM_SOURCE, "import", "old.ndjson")).toMatchObject({ exitCode: 0 });
    expect(await run(withField, "check")).toMatchObject({ exitCode: 0 });
    expect(await run(withField, "export")).toMatchObject({ exitCode: 0, stdout: fern });

    await Bun.write(home.at("new.ndjson"), ivy);
    expect(await run(withField, "import", "new.ndjson")).toMatchObject({ exitCode: 0 });
    expect(await run(withField, "export")).toMatchObject({ exitCode: 0, stdout: fern + ivy });
  });

  test.each(STEPS)("without its step in $file, something red names it (step %#)", async (step) => {
    undo(step);
    const red = await redWithout(step);
    insertField(copy.path, step);
    expect(red).toContainEqual(expect.stringContaining(step.test?.name ?? `${step.file}(`));
    if (step.test === undefined) expect(red.join()).toContain("'light'");
  });

  function redWithout({ test: named }: Step): Promise<string[]> {
    if (named === undefined) return typeErrors(copy.path);
    // A pattern has no ">" between a group of tests and its test.
    return failingTests(copy.path, named.file, named.name.replace(/.* > /, ""));
  }

  test("without the generated migrations, a test for each database names what lacks one", async () => {
    rmSync(copy.at("drizzle"), { recursive: true });
    cpSync(join(ROOT, "drizzle"), copy.at("drizzle"), { recursive: true });
    await Bun.$`${process.execPath} ${copy.at("src/build/embed_migrations.ts")}`;
    const name = "drizzle-kit finds nothing in the schema that none of them makes";
    expect(await failingTests(copy.path, MIGRATIONS_TEST, name)).toEqual(
      ["postgres", "sqlite"].map((database) => `the migrations of ${database} > ${name}`),
    );
  });
});

/** Follows the guide "Add a field". */
async function addField(root: string): Promise<void> {
  for (const step of STEPS) insertField(root, step);
  await Bun.$`bun run db:generate --name light`.cwd(root).quiet();
}

/** Takes a step of "Add a field". */
function insertField(root: string, { file, insert }: Step): void {
  for (const [before, added] of Object.entries(insert))
    mutate(root, { file, from: before, to: before + added });
}

/** The commands of each change, by the name of its migrations. */
const [rename = "", remove = "", require = ""] = blocks("Change a field", "bash");
const CHANGES: Readonly<Record<string, string>> = {
  brightness: rename,
  no_light: remove,
  require_light: require,
};

describe.skipIf(skipsCluster())("Change a field", () => {
  /** A repository with the field, whose builds are older than each change. */
  const older = repositoryCopy();
  afterAll(() => older[Symbol.dispose]());
  const cluster = withCluster({ timeoutMs: LONG_TEST_TIMEOUT_MS });

  beforeAll(() => addField(older.path));

  test("the guide lists the files of the steps that require the field, in their order", () => {
    const files = REQUIRING.map(({ file }) => relative("src", file));
    const listed = table("Change a field").map(([file = ""]) => file.replaceAll("`", ""));
    expect(listed).toEqual([...new Set(files)]);
  });

  test("the guide says what clients get", () => {
    const [, ...rows] = Array.from(section("Change a field").matchAll(/^\| a .*\|$/gm), ([row]) =>
      cellsOf(row).slice(1),
    );
    for (const [column, { sent }] of Object.values(OUTCOMES).entries()) {
      const told = rows.map((cells) => cells[column] ?? "").filter((cell) => cell !== "");
      expect(told.map((cell) => Number.parseInt(cell))).toEqual(sent.map(([, , newer]) => newer));
    }
  });

  describe.each(Object.keys(CHANGES))("%s", (name) => {
    const newer = repositoryCopy();
    afterAll(() => newer[Symbol.dispose]());

    /** The migrations as drizzle-kit writes them, if the guide has others. */
    let generated: Readonly<Record<string, string>>;

    beforeAll(async () => {
      linkPackages(newer.path);
      for (const step of STEPS) insertField(newer.path, step);
      // Another run of drizzle-kit would make another migration.
      rmSync(newer.at("drizzle"), { recursive: true });
      cpSync(older.at("drizzle"), newer.at("drizzle"), { recursive: true });
      generated = await changeField(newer.path, name);
    });

    test("the code passes its type check, and the tests of migrations and guides", async () => {
      expect(await typeErrors(newer.path)).toEqual([]);
      expect(await failuresIn(newer.path, [MIGRATIONS_TEST, GUIDES_TEST])).toEqual([]);
    });

    const program = (root: string) => [process.execPath, join(root, "src/main.ts")];
    const run = (root: string, cwd: string, env: Record<string, string>, ...args: string[]) =>
      runToEnd({ program: program(root), args, cwd, env });

    test.each(["SQLite", "PostgreSQL"])(
      "keeps the plants of %s, and each client gets what the guide says",
      async (database) => {
        const { sent, exported } = OUTCOMES[name] as Outcomes;
        using home = emptyDirectory();
        await using made = await cluster().newDatabase();
        const env: Record<string, string> = { AUTH_TOKENS: TOKEN };
        if (database === "PostgreSQL") env["DATABASE_URL"] = made.url;
        const options = { cwd: home.path, env };

        {
          await using server = await startServer({ ...options, program: program(older.path) });
          for (const plant of STORED) expect((await post(server.url, plant)).status).toBe(200);

          // It should have been stopped.
          const migrated = await run(newer.path, home.path, env, "migrate");
          expect(migrated).toMatchObject({ exitCode: 0 });
          for (const [plant, status] of sent)
            expect([plant, (await post(server.url, plant)).status]).toEqual([plant, status]);
        }

        const again = await run(older.path, home.path, env, "serve", "--port", "0");
        expect(again).toMatchObject({ exitCode: 1 });
        expect(again.stderr).toContain("it was made by a newer plant-store");

        await using server = await startServer({ ...options, program: program(newer.path) });
        for (const [plant, , status] of sent)
          expect([plant, (await post(server.url, plant)).status]).toEqual([plant, status]);
        const { stdout } = await run(newer.path, home.path, env, "export");
        expect(stdout.trimEnd().split("\n")).toEqual([...exported]);

        if (database === "SQLite")
          expect(await run(newer.path, home.path, env, "check")).toMatchObject({ exitCode: 0 });
      },
    );

    test("the newer build reads an older file as the guide says", async () => {
      using home = emptyDirectory();
      using other = emptyDirectory();
      await Bun.write(home.at("plants.ndjson"), `${STORED.join("\n")}\n`);
      await run(older.path, home.path, {}, "import", "plants.ndjson");
      await run(older.path, home.path, {}, "backup", other.at("backup"));

      const isRequired = name === "require_light";
      const { stdout } = await run(newer.path, home.path, {}, "export");
      expect(stdout.includes('"bright"')).toBe(isRequired);

      const checked = await run(newer.path, home.path, {}, "check");
      const restored = await run(newer.path, other.path, {}, "restore", "backup");
      expect([checked.exitCode, restored.exitCode]).toEqual([0, 0]);
    });

    test("a plant that differed in the field has another outcome only if the field is removed", async () => {
      using home = emptyDirectory();
      await Bun.write(home.at("plants.ndjson"), `${STORED.join("\n")}\n`);
      await run(older.path, home.path, {}, "import", "plants.ndjson");
      const other = WITH_LIGHT.replace("bright", "dim").replace(
        "light",
        name === "brightness" ? "brightness" : "light",
      );

      const env = { AUTH_TOKENS: TOKEN };
      await using server = await startServer({
        program: program(newer.path),
        cwd: home.path,
        env,
      });
      expect((await post(server.url, other)).status).toBe(name === "no_light" ? 200 : 409);
    });

    if (name === "brightness") {
      test("without a terminal `bun run db:generate` fails, and writes nothing", async () => {
        using copy = repositoryCopy();
        for (const step of STEPS.filter(({ file }) => file.endsWith("/schema.ts")))
          for (const [before] of Object.entries(step.insert))
            mutate(copy.path, { file: step.file, from: before, to: "label: text(),\n" });
        const { exitCode, stderr } = await Bun.$`bun run db:generate --name label < /dev/null`
          .cwd(copy.path)
          .quiet()
          .nothrow();
        expect([exitCode, stderr.toString()]).toEqual([
          1,
          expect.stringContaining("it needs a terminal"),
        ]);
        expect(
          await Bun.$`diff --recursive drizzle ${join(ROOT, "drizzle")}`
            .cwd(copy.path)
            .quiet()
            .nothrow(),
        ).toMatchObject({ exitCode: 0 });
      });

      test("a custom migration is empty, for each database", async () => {
        using copy = repositoryCopy();
        await Bun.$`bun run db:generate --custom --name fill < /dev/null`.cwd(copy.path).quiet();
        for (const file of ["sqlite/0003_fill.sql", "postgres/0001_fill.sql"])
          expect(await Bun.file(copy.at(`drizzle/${file}`)).text()).toMatch(/^-- .* --$/);
      });

      test("a client of the older build does not take a 200 without its field for its plant's", async () => {
        const { fetchWithRetries } = (await import(
          older.at("src/http/client.ts")
        )) as typeof Client;
        const controller = new AbortController();
        let requests = 0;
        using server = Bun.serve({
          port: 0,
          fetch() {
            if (++requests === 2) controller.abort();
            return Response.json({ name: "Moss" });
          },
        });
        const sending = fetchWithRetries(`${server.url}plants`, {
          method: "POST",
          body: '{"id":3,"name":"Moss","light":"low"}',
          signal: controller.signal,
        });
        await expect(sending).rejects.toMatchObject({ name: "AbortError" });
        expect(requests).toBe(2);
      });
    }

    if (name === "no_light") {
      test("the source and the README are what they were before the field", async () => {
        const compared =
          await Bun.$`diff --recursive --exclude=migration_files.ts src ${join(ROOT, "src")}; diff README.md ${join(ROOT, "README.md")}`
            .cwd(newer.path)
            .quiet()
            .nothrow();
        expect(compared.stdout.toString()).toBe("");
      });
    }

    if (name === "require_light") {
      test("without its steps, a type error or a test names each", async () => {
        const take = (step: ChangeStep) => takeChange(newer.path, step);
        const undo = ({ file, replace }: ChangeStep) => {
          for (const [from, to] of Object.entries(replace))
            mutate(newer.path, { file, from: to, to: from });
        };

        const isType = ({ namedBy }: ChangeStep) => typeof namedBy !== "object";
        const types = REQUIRING.filter(isType);
        // The record's own steps one by one: without both, nothing has changed.
        const isRecord = ({ file }: ChangeStep) => file === "src/plant/plant.ts";
        const groups = [
          ...types.filter(isRecord).map((step) => [step]),
          types.filter((step) => !isRecord(step)),
        ];
        for (const group of groups) {
          group.forEach(undo);
          const red = await typeErrors(newer.path);
          group.forEach(take);
          for (const { file, namedBy } of group)
            expect(red).toContainEqual(expect.stringContaining(`${namedBy ?? file}(`));
        }

        // Together in each file, as far as one test file names them.
        const tested = REQUIRING.flatMap((step) =>
          typeof step.namedBy === "object" ? [{ step, ...step.namedBy }] : [],
        );
        const runs = Object.values(
          Object.groupBy(tested, ({ step, file }) => `${step.file} ${file}`),
        );
        for (const left of runs as (typeof tested)[]) {
          const pattern = left
            .map(({ name }) => RegExp.escape(name.replace(/.* > /, "")))
            .join("|");
          for (const { step } of left) undo(step);
          const red = await failingTests(newer.path, left[0]?.file ?? "", pattern);
          for (const { step } of left) take(step);
          for (const { name } of left) expect(red).toContainEqual(expect.stringContaining(name));
        }
      });

      test("without the guide's SQL, a migration refuses rows without a value, and changes nothing", async () => {
        using home = emptyDirectory();
        await using made = await cluster().newDatabase();
        await Bun.write(home.at("plants.ndjson"), `${STORED.join("\n")}\n`);
        for (const [file, sql] of Object.entries(generated)) await Bun.write(newer.at(file), sql);

        for (const [env, refusal] of [
          [{}, "NOT NULL constraint failed"],
          [{ DATABASE_URL: made.url }, "makes a column NOT NULL"],
        ] as const) {
          await run(older.path, home.path, env, "import", "plants.ndjson");
          const migrated = await run(newer.path, home.path, env, "migrate");
          expect(migrated).toMatchObject({
            exitCode: 1,
            stderr: expect.stringContaining(refusal),
          });
          const { stdout } = await run(older.path, home.path, env, "export");
          expect(stdout.trimEnd().split("\n")).toEqual(STORED);
        }

        for (const [file, sql] of Object.entries(BY_HAND)) await Bun.write(newer.at(file), sql);
      });

      test("without STRICT, a test names the table", async () => {
        const file = "drizzle/sqlite/0004_require_light.sql";
        const named = "connect() makes strict tables: a column takes its own type only";
        const tests = "test/database/sqlite/opening.test.ts";
        const red = () => failingTests(newer.path, tests, RegExp.escape(named));
        expect(await red()).toEqual([]);
        mutate(newer.path, { file, from: "\n) STRICT;", to: "\n);" });
        expect(await red()).toEqual([named]);
        await Bun.write(newer.at(file), BY_HAND[file] ?? "");
      });
    }
  });
});

/** The migrations that the guide writes by hand. */
const [SQLITE = "", POSTGRES = ""] = blocks("Change a field", "sql");
const BY_HAND: Readonly<Record<string, string>> = {
  "drizzle/sqlite/0004_require_light.sql": SQLITE,
  "drizzle/postgres/0002_require_light.sql": POSTGRES,
};

/**
 * Follows a part of the guide "Change a field". Resolves to the migrations that drizzle-kit wrote
 * where the guide has others.
 */
async function changeField(root: string, name: string): Promise<Record<string, string>> {
  if (name === "require_light") for (const step of REQUIRING) takeChange(root, step);
  // `git ls-files` lists what has been added.
  await Bun.$`git init --quiet && git add README.md src test`.cwd(root).quiet();
  expect(await failureOnTerminal(root, CHANGES[name] ?? "")).toBe("");

  const generated: Record<string, string> = {};
  if (name !== "require_light") return generated;
  for (const [file, sql] of Object.entries(BY_HAND)) {
    generated[file] = await Bun.file(join(root, file)).text();
    await Bun.write(join(root, file), sql);
  }
  return generated;
}

function takeChange(root: string, { file, replace }: ChangeStep): void {
  for (const [from, to] of Object.entries(replace)) mutate(root, { file, from, to });
}

/** What the older build stored. */
const STORED = [
  '{"id":1,"name":"Fern"}',
  '{"id":2,"name":"Ivy","tag":"indoor","light":"bright"}',
  '{"id":9223372036854775807,"name":"","light":""}',
];

const [WITHOUT_LIGHT = "", WITH_LIGHT = ""] = STORED;
const WITH_BRIGHTNESS = WITH_LIGHT.replace("light", "brightness");
const ADDED = '{"id":3,"name":"Moss","light":"low"}';

/** What a change gives. */
interface Outcomes {
  /** Plants, each with the status of a server of the older build that still runs, and of a newer one. */
  readonly sent: readonly (readonly [plant: string, older: number, newer: number])[];
  /** What is stored in the end. */
  readonly exported: readonly string[];
}

const OUTCOMES: Readonly<Record<string, Outcomes>> = {
  brightness: {
    sent: [
      [WITHOUT_LIGHT, 500, 200],
      [WITH_LIGHT, 500, 409],
      [WITH_BRIGHTNESS, 500, 200],
      [ADDED, 500, 200],
    ],
    exported: [
      WITHOUT_LIGHT,
      WITH_BRIGHTNESS,
      '{"id":3,"name":"Moss"}',
      '{"id":9223372036854775807,"name":"","brightness":""}',
    ],
  },
  no_light: {
    sent: [
      [WITHOUT_LIGHT, 500, 200],
      [WITH_LIGHT, 500, 200],
      [WITH_BRIGHTNESS, 500, 200],
      [ADDED, 500, 200],
    ],
    exported: [
      WITHOUT_LIGHT,
      '{"id":2,"name":"Ivy","tag":"indoor"}',
      '{"id":3,"name":"Moss"}',
      '{"id":9223372036854775807,"name":""}',
    ],
  },
  require_light: {
    sent: [
      [WITHOUT_LIGHT, 500, 400],
      [WITH_LIGHT, 200, 200],
      [WITH_BRIGHTNESS, 500, 400],
      ['{"id":1,"name":"Fern","light":"unknown"}', 200, 200],
      ['{"id":1,"name":"Fern","light":"low"}', 409, 409],
      [ADDED, 200, 200],
    ],
    exported: [
      '{"id":1,"name":"Fern","light":"unknown"}',
      WITH_LIGHT,
      ADDED,
      '{"id":9223372036854775807,"name":"","light":""}',
    ],
  },
};

const KIND = "Add a kind of field";

describe(KIND, () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());

  const edits = blocks(KIND, "diff").map(editOf);

  beforeAll(() => follow(copy.path, KIND));

  test.each(edits)("without its step in $file, a type error names it", async (edit) => {
    undo(copy.path, edit);
    const red = await typeErrors(copy.path);
    take(copy.path, edit);
    expect(red).toContainEqual(expect.stringMatching(/'(?:height|double)'/));
  });
});

/** The file that a guide adds, from the repository's root. */
function newFileOf(guide: string): string | undefined {
  const [, path] = /`(\w+\/\w+\.ts)` \(new\)/.exec(section(guide)) ?? [];
  return path === undefined ? undefined : join("src", path);
}

/** Follows a guide: its new file, and its edits. */
async function follow(root: string, guide: string): Promise<void> {
  const file = newFileOf(guide);
  const [code = ""] = blocks(guide, "ts");
  if (file !== undefined) await Bun.write(join(root, file), code);
  for (const edit of blocks(guide, "diff").map(editOf)) take(root, edit);
  if (guide === KIND) await finishField(root, "height");
}

/** The steps of a new field that are no edits of the guide: its migrations, and the rows of the guides. */
async function finishField(root: string, name: string): Promise<void> {
  await Bun.$`bun run db:generate --name ${name}`.cwd(root).quiet();
  for (const { file, insert } of STEPS.filter(({ file }) => /README|client/.test(file)))
    for (const [before, added] of Object.entries(insert))
      mutate(root, { file, from: before, to: before + added.replaceAll("light", name) });
}

/** What names a step of the guide "Add an operation" that is left out. */
interface Named {
  /** In a type error. */
  readonly error?: string;
  /** A test, and the file that has it. */
  readonly test?: { readonly file: string; readonly name: string };
}

const PATHS_TEST = "test/http/paths.test.ts";

const STANDBY_TEST = "test/database/postgres/standby.test.ts";

/** The files of the guide, in its order. */
const OPERATION_STEPS: Readonly<Record<string, Named>> = {
  "src/database/database.ts": { error: "'PlantReader'" },
  "src/database/adapter.ts": { error: "'get'" },
  "test/support/database_contract.ts": {
    test: {
      file: "test/database/memory.test.ts",
      name: "the contract of Database checks each of its methods",
    },
  },
  "src/database/memory.ts": { error: "'get'" },
  "src/database/sqlite/sqlite_database.ts": { error: "'get'" },
  "src/database/sqlite/writer_worker.ts": { error: '"get"' },
  "src/database/sqlite/sqlite_adapter.ts": { error: "'get'" },
  "src/database/postgres/pages.ts": { error: "'durablePlant'" },
  "src/database/postgres/postgres_database.ts": { error: "'get'" },
  [STANDBY_TEST]: { error: "'get'" },
  "src/database/citus/citus_database.ts": { error: "'get'" },
  "test/database/sqlite/sqlite_database.test.ts": { error: "'get'" },
  "src/auth/authenticate.ts": { error: '"read"' },
  "src/http/paths.ts": {
    test: {
      file: PATHS_TEST,
      name: "each path of the table has a route, and its methods are those of Allow",
    },
  },
  "src/errors.ts": { error: '"plant_not_found"' },
  "test/http/responses.test.ts": { error: "'plant_not_found'" },
  "src/http/plant_reading.ts": { error: "plant_reading" },
  "src/http/plants.ts": { error: "'ErrorSchema'" },
  "src/http/app.ts": { error: "'readPlant'" },
  "src/http/openapi.ts": {
    test: {
      file: "test/http/openapi.test.ts",
      name: "the document has the operations of the table of paths that need a token, but for the metrics, and each says what it does",
    },
  },
  "src/server/service.ts": {
    test: { file: "test/http/wire.test.ts", name: "the program has every path of the table" },
  },
  "src/http/README.md": { test: { file: GUIDES_TEST, name: "the API guide lists every path" } },
  "test/support/app.ts": {
    test: {
      file: PATHS_TEST,
      name: "GET /plants/{id}, which is for read, says so to a request without credentials",
    },
  },
};

describe("Add an operation", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());

  const NEW_FILE = "src/http/plant_reading.ts";
  const [newFile = ""] = blocks("Add an operation", "ts");
  const edits = blocks("Add an operation", "diff").map(editOf);

  beforeAll(async () => {
    linkPackages(copy.path);
    for (const file of Object.keys(OPERATION_STEPS)) await takeStep(file);
  });

  async function takeStep(file: string): Promise<void> {
    if (file === NEW_FILE) await Bun.write(copy.at(file), newFile);
    for (const edit of edits) if (edit.file === file) take(copy.path, edit);
  }

  function undoStep(file: string): void {
    if (file === NEW_FILE) rmSync(copy.at(file));
    for (const edit of edits) if (edit.file === file) undo(copy.path, edit);
  }

  test("the guide has these steps, in their order", () => {
    const files = edits.map(({ file }) => file);
    expect(Object.keys(OPERATION_STEPS).filter((file) => file !== NEW_FILE)).toEqual(files);
  });

  test("without the commit after a row, a test names the read", async () => {
    const file = "src/database/postgres/pages.ts";
    const commit = "    await query(COMMIT_NOTHING);\n    return plantFrom(row);";
    const without = "    return plantFrom(row);";
    mutate(copy.path, { file, from: commit, to: without });
    const red = await failingTests(copy.path, STANDBY_TEST, "get\\(\\) shows no plant");
    mutate(copy.path, { file, from: without, to: commit });
    expect(red).toEqual([
      expect.stringContaining("get() shows no plant that the standby may not have"),
      expect.stringContaining("get() shows no plant that the standby may not have"),
    ]);
  });

  test("the program reads a plant with every digit of its id, and counts it under the pattern", async () => {
    using home = emptyDirectory();
    await using server = await startServer({
      program: [process.execPath, copy.at("src/main.ts")],
      cwd: home.path,
      env: { AUTH_TOKENS: TOKEN },
    });
    const stored = '{"id":9223372036854775807,"name":"Fern"}';
    expect((await post(server.url, stored)).status).toBe(200);

    const get = (path: string) => fetch(`${server.url}${path}`, { headers: bearer() });
    const found = await get("/plants/9223372036854775807");
    expect([found.status, await found.text()]).toEqual([200, stored]);
    for (const id of ["1", "fern", "9223372036854775808"])
      expect(await (await get(`/plants/${id}`)).json()).toMatchObject({ error: 4042 });

    expect(await (await get("/metrics")).text()).toContain('path="/plants/{id}"');
  });

  test.each(Object.entries(OPERATION_STEPS))(
    "without its step in %s, something red names it",
    async (file, { error, test: named }) => {
      undoStep(file);
      const red =
        named === undefined
          ? await typeErrors(copy.path)
          : await failingTests(copy.path, named.file, RegExp.escape(named.name));
      await takeStep(file);
      expect(red).toContainEqual(expect.stringContaining(error ?? named?.name ?? ""));
    },
  );
});

/** One change of a file: a text that occurs once, and what takes its place. */
interface Hunk {
  readonly before: string;
  readonly after: string;
}

/** The changes of a file. */
interface Edit {
  /** From the repository's root. */
  readonly file: string;
  readonly hunks: readonly Hunk[];
}

function take(root: string, { file, hunks }: Edit): void {
  for (const { before, after } of hunks) mutate(root, { file, from: before, to: after });
}

function undo(root: string, { file, hunks }: Edit): void {
  for (const { before, after } of hunks) mutate(root, { file, from: after, to: before });
}

/** The edit of a block in the format of `diff`: a line with the file, and hunks between `@@`. */
function editOf(block: string): Edit {
  const [, path = "", text = ""] = /^--- (\S+)\n(.*)$/s.exec(block) ?? [];
  const hunks = text.split(/^@@\n/m).map((hunk) => {
    const lines = hunk.match(/^.*\n/gm) ?? [];
    const without = (mark: string) =>
      lines.flatMap((line) => (line.startsWith(mark) ? [] : line.replace(/^[ +-]/, ""))).join("");
    return { before: without("+"), after: without("-") };
  });
  return { file: join("src", path), hunks };
}

/** Recipes that a fork follows together. */
const TOGETHER = [KIND, "Add an operation", "List plants", "A limit per caller"];

describe("a fork with a kind of field, two reads and a limit", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());

  beforeAll(async () => {
    for (const recipe of TOGETHER) await follow(copy.path, recipe);
  });

  test("lists plants by a cursor, and refuses another one by its name", async () => {
    using home = emptyDirectory();
    await using server = await startServer({
      program: [process.execPath, copy.at("src/main.ts")],
      cwd: home.path,
      env: { AUTH_TOKENS: TOKEN },
    });
    const lines = ["-9223372036854775808", "1", "9223372036854775807"].map(
      (id) => `{"id":${id},"name":"Fern","height":1.5}`,
    );
    for (const line of lines) expect((await post(server.url, line)).status).toBe(200);

    const list = async (query: string) => {
      const response = await fetch(`${server.url}/plants${query}`, { headers: bearer() });
      return [response.status, await response.text()];
    };
    expect(await list("?limit=2")).toEqual([
      200,
      `{"plants":[${lines.slice(0, 2).join(",")}],"next":"1"}`,
    ]);
    expect(await list("?after=1")).toEqual([
      200,
      `{"plants":[${lines[2]}],"next":"9223372036854775807"}`,
    ]);
    expect(await list("?after=9223372036854775807")).toEqual([200, '{"plants":[]}']);
    const [status, text = ""] = await list("?after=fern&limit=0");
    expect([status, JSON.parse(String(text))]).toEqual([
      400,
      { error: 4002, message: "in the query: `after` is not valid; `limit` is not valid" },
    ]);
  });

  test("limits a caller if CALLER_LIMIT says so", async () => {
    for (const [env, expected] of [
      [{}, [200]],
      [{ CALLER_LIMIT: "1" }, [200, 429]],
    ] as const) {
      using home = emptyDirectory();
      await using server = await startServer({
        program: [process.execPath, copy.at("src/main.ts")],
        cwd: home.path,
        env: { AUTH_TOKENS: TOKEN, ...env },
      });
      const requests = Array.from({ length: 30 }, async () => (await post(server.url)).status);
      expect([...new Set(await Promise.all(requests))].toSorted()).toEqual([...expected]);
    }
  });

  test("refuses with 429 whoever sends too many, and nobody else", async () => {
    const { createApp } = (await import(copy.at("src/mod.ts"))) as typeof PlantStore;
    const { limitPerCaller } = await import(copy.at("src/server/caller_limit.ts"));
    const authenticate = limitPerCaller(staticTokens([TOKEN, OTHER_TOKEN]), {
      perSecond: 0.001,
      burst: 2,
    });
    const app = createApp({
      plants: { add: async () => "added" },
      ready: async () => {},
      authenticate,
    });

    const statusOf = async (token: string) => {
      const { status, headers } = await app.fetch(postPlant(undefined, bearer(token)));
      return [status, headers.get("retry-after")];
    };
    expect([await statusOf(TOKEN), await statusOf(TOKEN), await statusOf(TOKEN)]).toEqual([
      [200, null],
      [200, null],
      [429, "1"],
    ]);
    expect(await statusOf(OTHER_TOKEN)).toEqual([200, null]);
    expect(await statusOf("unknown-token-0123456789")).toEqual([401, null]);
  });
});

test.each(TOGETHER)("the files that %j lists are those of its steps", (recipe) => {
  const [, list = ""] = /^Files: (.*?\.ts`)[;.]/ms.exec(section(recipe)) ?? [];
  const listed = Array.from(list.matchAll(/`(.+?)`/g), ([, path = ""]) =>
    Bun.$.braces(path),
  ).flat();
  const files = [...blocks(recipe, "diff").map((block) => editOf(block).file), newFileOf(recipe)];
  const taken = files.flatMap((file) => file ?? []);
  expect(listed.map((path) => join("src", path)).toSorted()).toEqual(taken.toSorted());
});

/** What each recipe stands on comes before it. */
const RECIPES: readonly (readonly string[])[] = [
  ["Add a field"],
  ...Object.keys(CHANGES).map((change) => ["Add a field", change]),
  [KIND],
  ["Add an operation"],
  ["Add an operation", "List plants"],
  ["A limit per caller"],
];

// Each takes minutes. A fork with one more field is in `fork.long.ts`.
test.each(scaled([TOGETHER], RECIPES).map((recipes) => [recipes]))(
  "after %j, all that `bun run ok` runs is green",
  async (recipes) => {
    using copy = repositoryCopy();
    linkPackages(copy.path);
    for (const recipe of recipes) {
      if (recipe === "Add a field") await addField(copy.path);
      else if (recipe in CHANGES) await changeField(copy.path, recipe);
      else await follow(copy.path, recipe);
    }
    await Bun.$`bun run fmt`.cwd(copy.path).quiet();
    expect(await failuresOfOk(copy.path)).toEqual([]);
  },
  3 * LONG_TEST_TIMEOUT_MS,
);

const OTHER_TOKEN = "another-token-0123456789";

async function typeErrors(root: string): Promise<string[]> {
  const { stdout, stderr } = await Bun.$`bun run check`.cwd(root).quiet().nothrow();
  return `${stdout}${stderr}`.split("\n").filter((line) => / error TS\d+: /.test(line));
}
