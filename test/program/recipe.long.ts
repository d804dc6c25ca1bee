import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, rmSync, symlinkSync } from "node:fs";
import { join, relative } from "node:path";

import { staticTokens } from "../../src/auth/static_tokens.ts";
import type * as PlantStore from "../../src/mod.ts";
import { bearer, post, postPlant, TOKEN } from "../support/client.ts";
import { GUIDES_TEST, MIGRATIONS_TEST, type Step, STEPS } from "../support/field_steps.ts";
import { blocks, section, table } from "../support/guides.ts";
import { RUNTIMES_MODULES } from "../support/module_runtimes.ts";
import { failingTests, mutate, repositoryCopy } from "../support/mutant.ts";
import {
  emptyDirectory,
  FROM_SOURCE,
  LONG_TEST_TIMEOUT_MS,
  ROOT,
  runToEnd,
  startServer,
  temporaryDirectory,
} from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** The store of the module, which has statements of its own. */
const FILE_STORE = {
  file: "test/module/package.test.ts",
  name: "Bun keeps plants in a file of SQLite",
};

/** What a field goes through, beside the tests that name a step. */
const TESTS = [
  "test/plant",
  "test/http",
  "test/commands/export.test.ts",
  "test/commands/import.test.ts",
  "test/database/contract",
  "test/database/memory.test.ts",
  "test/database/sqlite/sqlite_database.test.ts",
  "test/database/sqlite/integrity.test.ts",
  "test/database/sqlite/worker_calls.test.ts",
  "test/database/postgres/postgres_database.test.ts",
];

describe("Add a field", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());

  beforeAll(async () => {
    symlinkSync(RUNTIMES_MODULES, copy.at("test/runtimes/node_modules"));
    STEPS.forEach(take);
    await Bun.$`bun run db:generate --name light`.cwd(copy.path).quiet();
  });

  function take({ file, insert }: Step): void {
    for (const [before, added] of Object.entries(insert))
      mutate(copy.path, { file, from: before, to: before + added });
  }

  function undo({ file, insert }: Step): void {
    for (const [before, added] of Object.entries(insert))
      mutate(copy.path, { file, from: before + added, to: before });
  }

  test("the guide lists the files of these steps, in their order", () => {
    const files = STEPS.map(({ file }) => relative("src", file));
    const listed = table("Add a field").map(([file = ""]) => file.replaceAll("`", ""));
    expect(listed.filter((file) => file !== "../drizzle/")).toEqual([...new Set(files)]);
  });

  test("the code passes its type check and its tests after all steps", async () => {
    expect(await typeErrors(copy.path)).toEqual([]);
    expect(await failuresIn(copy.path, [...TESTS, MIGRATIONS_TEST, GUIDES_TEST])).toEqual([]);
    expect(await failingTests(copy.path, FILE_STORE.file, FILE_STORE.name)).toEqual([]);
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
    take(step);
    expect(red).toContainEqual(expect.stringContaining(step.test?.name ?? `${step.file}(`));
    if (step.test === undefined) expect(red.join()).toContain("'light'");
  });

  function redWithout({ test: named }: Step): Promise<string[]> {
    if (named === undefined) return typeErrors(copy.path);
    // A pattern has no ">" between a group of tests and its test.
    return failingTests(copy.path, named.file, named.name.replace(/.* > /, ""));
  }

  test("without the generated migrations, a test for each database names what lacks one", async () => {
    for (const step of STEPS.filter(({ file }) => file.endsWith("/migrations.ts"))) undo(step);
    rmSync(copy.at("drizzle"), { recursive: true });
    cpSync(join(ROOT, "drizzle"), copy.at("drizzle"), { recursive: true });
    const name = "drizzle-kit finds nothing in the schema that none of them makes";
    expect(await failingTests(copy.path, MIGRATIONS_TEST, name)).toEqual(
      ["sqlite", "postgres"].map((database) => `the migrations of ${database} > ${name}`),
    );
  });
});

describe("Add a kind of field", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());

  const edits = blocks("Add a kind of field", "diff").map(editOf);

  beforeAll(async () => {
    symlinkSync(RUNTIMES_MODULES, copy.at("test/runtimes/node_modules"));
    for (const edit of edits) take(copy.path, edit);
    await finishField(copy.path, "height");
  });

  test("the code passes its type check and its tests after all steps", async () => {
    expect(await typeErrors(copy.path)).toEqual([]);
    const failures = await failuresIn(copy.path, [...TESTS, MIGRATIONS_TEST, GUIDES_TEST]);
    expect(failures).toEqual([]);
    expect(await failingTests(copy.path, FILE_STORE.file, FILE_STORE.name)).toEqual([]);
  });

  test.each(edits)("without its step in $file, a type error names it", async (edit) => {
    undo(copy.path, edit);
    const red = await typeErrors(copy.path);
    take(copy.path, edit);
    expect(red).toContainEqual(expect.stringMatching(/'(?:height|double)'/));
  });
});

/** The steps of a new field that are no edits of the guide: its migrations, and the rows of the guides. */
async function finishField(root: string, name: string): Promise<void> {
  await Bun.$`bun run db:generate --name ${name}`.cwd(root).quiet();
  for (const { file, insert } of STEPS.filter(({ file }) => /migrations|README|client/.test(file)))
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
    symlinkSync(RUNTIMES_MODULES, copy.at("test/runtimes/node_modules"));
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

  test("the code passes its type check and its tests after all steps", async () => {
    expect(await typeErrors(copy.path)).toEqual([]);
    expect(
      await failuresIn(copy.path, [
        ...TESTS.filter((path) => path.startsWith("test/database")),
        STANDBY_TEST,
        "test/http/openapi.test.ts",
        "test/http/app.test.ts",
        PATHS_TEST,
        "test/commands/token.test.ts",
        GUIDES_TEST,
      ]),
    ).toEqual([]);
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

describe("a fork with a kind of field, two reads and a limit", () => {
  const copy = repositoryCopy();
  afterAll(() => copy[Symbol.dispose]());

  beforeAll(async () => {
    for (const folder of ["test/runtimes", "test/clients"])
      symlinkSync(join(ROOT, folder, "node_modules"), copy.at(`${folder}/node_modules`));
    for (const recipe of [
      "Add a kind of field",
      "Add an operation",
      "List plants",
      "A limit per caller",
    ]) {
      const [, file] = /`(\w+\/\w+\.ts)` \(new\)/.exec(section(recipe)) ?? [];
      const [code = ""] = blocks(recipe, "ts");
      if (file !== undefined) await Bun.write(copy.at(`src/${file}`), code);
      for (const edit of blocks(recipe, "diff").map(editOf)) take(copy.path, edit);
    }
    await finishField(copy.path, "height");
    await Bun.$`bun run fmt`.cwd(copy.path).quiet();
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

  test("refuses with 429 whoever sends too many, if the setting says so", async () => {
    const { createApp } = (await import(copy.at("src/mod.ts"))) as typeof PlantStore;
    const { limitPerCaller } = await import(copy.at("src/auth/caller_limit.ts"));
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

  test("passes what `bun run ok` runs", async () => {
    const { stdout, stderr, exitCode } = await Bun.$`bun run ok`
      .cwd(copy.path)
      .env({ ...process.env, TMPDIR: temporaryDirectory() })
      .quiet()
      .nothrow();
    expect(failuresOf(`${stdout}${stderr}`)).toEqual([]);
    expect(exitCode).toBe(0);
  });
});

/** What knows every room: the tables of rooms, settings and metrics, and the pages. */
const TABLES_TESTS = [
  "test/architecture.test.ts",
  "test/settings",
  "test/telemetry",
  "test/server",
  "test/build",
  GUIDES_TEST,
  "test/program/main.test.ts",
  "test/program/telemetry.test.ts",
  "test/program/dashboard.test.ts",
];

/** Which metrics there are, by a server, its alerts and its guide. */
const METRICS_TEST = {
  file: "test/program/operator.test.ts",
  name: "the scrape configuration and the alerts name what there is",
};

describe("Take a room out", () => {
  test.each([
    { rooms: ["Citus"], files: ["test/program/postgres.test.ts", "test/simulation"] },
    { rooms: ["OpenTelemetry"], files: [] },
    {
      rooms: ["JWTs"],
      files: ["test/auth", "test/module/embedding.test.ts", "test/module/options.test.ts"],
    },
  ])(
    "without $rooms the code passes its checks, and the tests that know its rooms and pages",
    async ({ rooms, files }) => {
      using copy = repositoryCopy();
      symlinkSync(RUNTIMES_MODULES, copy.at("test/runtimes/node_modules"));
      await Bun.$`git init --quiet && git add --all -- ":!node_modules"
        git -c user.name=Fork -c user.email=fork@example.org commit --quiet --message Fork`
        .cwd(copy.path)
        .quiet();
      for (const room of rooms) {
        const [commands = ""] = blocks(`Without ${room}`, "bash");
        await Bun.$`bash -euo pipefail -c ${commands}`.cwd(copy.path).quiet();
      }

      const { exitCode } = await Bun.$`bun run check:static`.cwd(copy.path).quiet().nothrow();
      expect(exitCode).toBe(0);
      expect(await failuresIn(copy.path, [...TABLES_TESTS, ...files])).toEqual([]);
      expect(await failingTests(copy.path, METRICS_TEST.file, METRICS_TEST.name)).toEqual([]);
    },
  );
});

const OTHER_TOKEN = "another-token-0123456789";

async function typeErrors(root: string): Promise<string[]> {
  const { stdout, stderr } = await Bun.$`bun run check`.cwd(root).quiet().nothrow();
  return `${stdout}${stderr}`.split("\n").filter((line) => / error TS\d+: /.test(line));
}

/** The names of the tests that fail. A renamed copy has a PostgreSQL of a name that nobody else uses. */
async function failuresIn(root: string, files: readonly string[]): Promise<string[]> {
  const paths = files.map((file) => `./${file}`);
  const { stderr } = await Bun.$`bun test --parallel=2 --no-isolate ${paths}`
    .cwd(root)
    .env({ ...process.env, TMPDIR: temporaryDirectory() })
    .quiet()
    .nothrow();
  const output = stderr.toString();
  if (!/^ *\d+ pass$/m.test(output)) throw new Error(`No test ran:\n${output}`);
  return failuresOf(output);
}

function failuresOf(output: string): string[] {
  return output.match(/^\(fail\) .*$|^.* error TS\d+: .*$|^ *[1-9]\d* error.*$/gm) ?? [];
}
