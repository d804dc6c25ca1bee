import type { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Io } from "../../src/commands/terminal.ts";
import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { isRequired, PLANT_FIELDS } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { damage, makeLargeDatabase } from "../support/damage.ts";
import { databaseFixture, HOSTILE_PLANTS } from "../support/database_fixture.ts";
import { makeLedger } from "../support/ledger.ts";
import { startLoad } from "../support/load.ts";
import { fern, ivy, jsonOf, membersOf, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import {
  emptyDirectory,
  memoryDirectory,
  runToEnd,
  skipsProc,
  start,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { shell } from "../support/shell.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import { streamOf } from "../support/stream.ts";
import { exported, runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = `${jsonOf(fern())}\n`;
const SPROUT = `${jsonOf(fern({ id: 3n, [TEXT]: "🌱 é" }))}\n`;
const IVY = `${jsonOf(ivy({ id: 2n, [OPTIONAL_TEXT]: "indoor" }))}\n`;

function imported(path: string, source: string, options: Partial<Io> = {}) {
  return runCommand(["import", source], { DATABASE_URL: path }, options);
}

/** Imports chunks from standard input. */
function importedFrom(
  path: string,
  chunks: Parameters<typeof streamOf>[0],
  options: Partial<Io> = {},
) {
  return imported(path, "-", { stdin: () => streamOf(chunks), ...options });
}

function linesOf(count: number): string[] {
  return Array.from(
    { length: count },
    (_, id) => `${jsonOf(fern({ id, [TEXT]: `plant ${id}` }))}\n`,
  );
}

test("import of an export gives the same export, byte for byte, over a pipe", async () => {
  using database = await databaseFixture(HOSTILE_PLANTS);
  const program = shell('"$@" export | "$@" import - --database file:copy.db');
  const run = await runToEnd({ program, cwd: database.directory });
  expect(run).toEqual({
    exitCode: 0,
    stdout: "",
    stderr: `Initialized empty database "${database.at("copy.db")}"\n${HOSTILE_PLANTS.length} added, 0 already there, 0 refused\n`,
  });
  expect(await exported(database.at("copy.db"))).toBe(await exported(database.path));
});

test.each([
  ["of nothing", [], 0],
  ["with blank lines", ["\n", FERN, "\n \t\n\r\n", IVY, "\n\n"], 2],
  ["with CRLF", [FERN.replace("\n", "\r\n"), IVY.replace("\n", "\r\n")], 2],
  ["without an end of the last line", [FERN, IVY.trimEnd()], 2],
  ["with a byte order mark", ["\uFEFF", FERN, IVY], 2],
  ["of files that were joined, each with a byte order mark", [`\uFEFF${FERN}`, `\uFEFF${IVY}`], 2],
  [
    "in other words for the same plants",
    [
      `{ "${OPTIONAL_TEXT}" : "indoor", ${membersOf(ivy()).replace("Ivy", "Iv\\u0079")}, "x": [1], "id": 2.0 }\n`,
    ],
    1,
  ],
  ["in the tiniest chunks", Buffer.from(FERN + IVY + SPROUT.trimEnd()), 3],
] as [string, Iterable<string> | Uint8Array, number][])(
  "import of lines %s",
  async (_what, lines, plants) => {
    using database = await databaseFixture([]);
    const chunks =
      lines instanceof Uint8Array ? Array.from(lines, (byte) => Uint8Array.of(byte)) : lines;
    expect(await importedFrom(database.path, chunks)).toMatchObject({
      exitCode: 0,
      stderr: `${plants} added, 0 already there, 0 refused\n`,
    });

    const expected = [FERN, IVY, SPROUT];
    expect(await exported(database.path)).toBe(
      plants === 1 ? IVY : expected.slice(0, plants).join(""),
    );
  },
);

/** What a plant must have, as messages name it. */
const REQUIRED = ["id", ...PLANT_FIELDS.filter(isRequired)].map((name) => `\`${name}\``);
const SECRET = jsonOf(fern({ id: 9n, [TEXT]: "secret" }));

/** A line that is refused, and why. None of it may be repeated: each has a secret. */
const REFUSED: [string | Uint8Array, string][] = [
  [
    `[${SECRET}]`,
    `the line must be a JSON object with ${REQUIRED.join(", ").replace(/, (?=[^,]*$)/, " and ")}`,
  ],
  ["secret", "the line must be valid JSON; syntax error at column 1"],
  [SECRET.slice(0, -1), `the line must be valid JSON; unexpected end at column ${SECRET.length}`],
  ['{"secret":1}', REQUIRED.map((name) => `${name} is missing`).join("; ")],
  [
    SECRET.replace("9", '"9"'),
    "`id` must be an integer from -9223372036854775808 to 9223372036854775807",
  ],
  [
    `{"id":9,${membersOf(fern())},"${TEXT}":["secret"],"${OPTIONAL_TEXT}":null}`,
    `\`${TEXT}\` must be a string; \`${OPTIONAL_TEXT}\` must be a string`,
  ],
  [Buffer.from(SECRET.replace("secret", "secret \xff"), "latin1"), "the line must be UTF-8"],
  [SECRET.replace("9", "2"), "`id` is taken by a different plant; choose another id"],
];

test("import reports every line it refuses with its number and the reason, and adds the others", async () => {
  using database = await databaseFixture([ivy({ id: 2n, [OPTIONAL_TEXT]: "indoor" })]);
  const added = REFUSED.map((_, index) => `${jsonOf(fern({ id: 100 + index }))}\n`);
  const chunks = REFUSED.flatMap(([line], index) => [line, "\n", added[index] as string]);
  const { exitCode, stderr } = await importedFrom(database.path, chunks);
  const reports = REFUSED.map(([, reason], index) => `line ${2 * index + 1}: ${reason}`);

  expect(stderr.trimEnd().split("\n")).toEqual([...reports, "8 added, 0 already there, 8 refused"]);
  expect(exitCode).toBe(1);
  expect(await exported(database.path)).toBe(IVY + added.join(""));
});

test.each<[string, Uint8Array | string, string]>([
  ["gzip", Bun.gzipSync(FERN + IVY), "UTF-8"],
  ["UTF-16", Buffer.from(`\uFEFF${FERN}${IVY}`, "utf16le"), "UTF-8"],
  ["CSV", "\uFEFFid,name,tag\r\n1,Fern,\r\n", "valid JSON; syntax error at column 1"],
  ["an array of many lines", `[\n${FERN}]\n`, "valid JSON; unexpected end at column 2"],
])("import refuses %s at its first line, and makes no database", async (_what, content, must) => {
  using directory = emptyDirectory(memoryDirectory());
  const path = directory.at("plants.db");
  const chunks = Array.from(Buffer.from(content), (byte) => Uint8Array.of(byte));
  expect(await importedFrom(path, chunks)).toMatchObject({
    exitCode: 1,
    stderr: `Cannot add plants: expected one JSON object per line, as export prints; line 1: the line must be ${must}\n`,
  });
  expect(existsSync(path)).toBe(false);
});

test.each([
  ["path", (path: string) => path],
  ["URL", (path: string) => `file:${path}`],
])("import of a database by its %s adds its plants, exactly", async (_what, sourceOf) => {
  using source = await databaseFixture(HOSTILE_PLANTS);
  using database = await databaseFixture([ivy({ id: 100n })]);
  const present = HOSTILE_PLANTS.length;

  for (const counts of [`${present} added, 0`, `0 added, ${present}`])
    expect(await imported(database.path, sourceOf(source.path))).toEqual({
      exitCode: 0,
      stdout: "",
      stderr: `${counts} already there, 0 refused\n`,
    });

  const lines = (await exported(database.path)).replace(`${jsonOf(ivy({ id: 100n }))}\n`, "");
  expect(lines).toBe(await exported(source.path));
});

test("import of a database adds many batches while a server runs on each", async () => {
  using directory = emptyDirectory(memoryDirectory());
  using source = await databaseFixture([]);
  await importedFrom(source.path, linesOf(9_000));
  const serve = async (...args: string[]) =>
    await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN }, args });
  await using servers = new AsyncDisposableStack();
  servers.use(await serve("--database", source.path));
  servers.use(await serve());

  const run = await runToEnd({ args: ["import", source.path, "--json"], cwd: directory.path });
  expect(run).toMatchObject({ exitCode: 0, stderr: "" });
  expect(JSON.parse(run.stdout)).toEqual({
    database: "plants.db",
    file: source.path,
    added: 9_000,
    present: 0,
    refused: 0,
    validTokens: [],
    revokedTokens: [],
    refusedTokens: [],
  });
  expect(await exported(directory.at("plants.db"))).toBe(linesOf(9_000).join(""));
});

test("import of a database names each plant that it refuses by its id, and adds the others", async () => {
  using source = await databaseFixture([fern({ id: 1n }), fern({ id: 2n }), fern({ id: 3n })]);
  using client = connect(source.path);
  client.run(`UPDATE plants SET ${TEXT} = 'a' || char(0) WHERE id = 1`);
  using database = await databaseFixture([ivy({ id: 2n })]);

  expect(await imported(database.path, source.path)).toEqual({
    exitCode: 1,
    stdout: "",
    stderr: [
      `id 1: \`${TEXT}\` must not contain U+0000 or a lone surrogate`,
      "id 2: `id` is taken by a different plant; choose another id",
      "1 added, 0 already there, 2 refused\n",
    ].join("\n"),
  });
});

test("import of a corrupt database adds what can be read, says what is missing, and fails", async () => {
  using directory = emptyDirectory();
  const source = directory.at("source.db");
  makeLargeDatabase(source, 20_000);
  damage(source, "flipped bits in a page in the middle");
  const path = directory.at("plants.db");

  const { exitCode, stderr } = await imported(path, source);
  const lines = (await exported(path)).trimEnd().split("\n").length;
  expect(exitCode).toBe(1);
  expect(lines).toBeGreaterThan(19_000);
  expect(stderr.split("\n")).toEqual([
    `Initialized empty database "${path}"`,
    `${lines.toLocaleString("en")} added, 0 already there, 0 refused`,
    expect.stringMatching(
      new RegExp(
        `^Database "${RegExp.escape(source)}" is corrupt \\(.*\\): read ${lines} plants; some are missing `,
      ),
    ),
    "",
  ]);
});

test.each([
  ["file:missing.db", 1, /^Cannot open database "missing.db": there is no such file[^\n]*\n$/],
  ["file:", 2, /^Cannot use the source: expected [^\n]+\n$/],
])("import of %s is refused, and makes no database", async (source, exitCode, says) => {
  using directory = emptyDirectory(memoryDirectory());
  const path = directory.at("plants.db");
  const result = await imported(path, source);
  expect(result).toEqual({ exitCode, stdout: "", stderr: expect.stringMatching(says) });
  expect(existsSync(path)).toBe(false);
});

test("import counts blank lines, and reports lines in their order over many batches", async () => {
  using database = await databaseFixture([ivy({ id: 1_500n })]);
  const lines = linesOf(3_500);
  lines[10] = "\n";
  for (const number of [20, 1_400, 1_600, 3_400]) lines[number - 1] = "{}\n";

  const { exitCode, stderr } = await importedFrom(database.path, lines);
  const reported = Array.from(
    stderr.matchAll(/^line (\d+): `id` is (missing|taken)/gm),
    ([, ...parts]) => parts.join(" "),
  );

  expect(reported).toEqual([
    "20 missing",
    "1400 missing",
    "1501 taken",
    "1600 missing",
    "3400 missing",
  ]);

  expect(stderr).toEndWith("3,494 added, 0 already there, 5 refused\n");
  expect(exitCode).toBe(1);
});

test("import takes a line of 64 MiB, and ends at one that is longer", async () => {
  using database = await databaseFixture([]);
  const [begin = "", end = ""] = jsonOf(fern({ [TEXT]: "@" })).split("@");
  const longest = [
    begin,
    ...Array(63).fill("x".repeat(2 ** 20)),
    "x".repeat(2 ** 20 - begin.length - end.length),
    end,
  ];
  const endless = Array.from({ length: 1_100 }, () => "x".repeat(2 ** 16));

  expect(await importedFrom(database.path, [...longest, "\n", ...endless])).toEqual({
    exitCode: 1,
    stdout: "",
    stderr:
      "Cannot add line 2: it must have at most 67108864 bytes; remove it, and run the import again\n",
  });
  expect(await exported(database.path)).toBe(`${longest.join("")}\n`);
});

test.each([
  ["that is not there", () => {}, "no such file or directory"],
  ["that is a directory", (path: string) => mkdirSync(path), "illegal operation on a directory"],
])(
  "import of a file %s fails with one clear line, and makes no database",
  async (_what, make, says) => {
    using directory = emptyDirectory(memoryDirectory());
    const path = directory.at("plants.db");
    const file = directory.at("plants.ndjson");
    make(file);
    const stderr = `Cannot read "${file}": ${says}\n`;
    expect(await imported(path, file)).toEqual({ exitCode: 1, stdout: "", stderr });
    expect(existsSync(path)).toBe(false);
  },
);

/** Gives texts, and what follows when all of them were read and more is wanted. */
async function* textsThen(texts: readonly string[], then: () => unknown) {
  yield* texts;
  await then();
}

test("import that is stopped keeps what it has read, and says how far it got", async () => {
  using database = await databaseFixture([]);
  const stop = new AbortController();
  const begun = [linesOf(1_500).join(""), '{"id":9999,"na'];
  const neverEnds = () => (stop.abort(), new Promise(() => {}));

  expect(
    await importedFrom(database.path, textsThen(begun, neverEnds), { stop: stop.signal }),
  ).toEqual({
    exitCode: 1,
    stdout: "",
    stderr:
      "Stopped after line 1500, run the import again to continue: 1,500 added, 0 already there, 0 refused\n",
  });

  expect(await exported(database.path)).toBe(linesOf(1_500).join(""));
});

test.concurrent("SIGINT ends an import that has no end", async () => {
  using directory = emptyDirectory(memoryDirectory());
  const program = shell('mkfifo lines && { yes "$LINE" > lines & } && exec "$@" < lines');
  const env = { LINE: FERN.trim() };
  await using run = start({ program, args: ["import", "-"], cwd: directory.path, env });

  await run.stderr.until(/Initialized/);
  run.child.kill("SIGINT");
  expect(await run.child.exited).toBe(1);
  expect(await run.stderr.end).toMatch(
    /\nStopped(?: after line \d+)?, run the import again to continue: [^\n]+\n$/,
  );
});

test.skipIf(skipsProc()).each([
  ["/dev/null", "operation not permitted"],
  ["/proc/self/mem", "i/o error"],
])("import of %s, which is not a file, is refused: %s", async (source, reason) => {
  using database = await databaseFixture([]);
  const stderr = `Cannot read "${source}": ${reason}\n`;
  expect(await imported(database.path, source)).toEqual({ exitCode: 1, stdout: "", stderr });
});

test.each([
  [
    "adds its plants once that ends",
    (other: Database) => other.run("ROLLBACK"),
    0,
    "1,001 added, 0 already there, 0 refused",
  ],
  [
    "ends when it is stopped",
    (_: Database, stop: AbortController) => stop.abort(),
    1,
    "Stopped after line 1000, run the import again to continue: 1,000 added, 0 already there, 0 refused",
  ],
])(
  "import waits while another process holds the lock, and %s",
  async (_, end, exitCode, stderr) => {
    using database = await databaseFixture([]);
    using other = connect(database.path);
    const stop = new AbortController();

    async function* chunks() {
      yield linesOf(1_000).join("");
      // The first batch is committed. The turns of the event loop go on while the import waits.
      other.run("BEGIN IMMEDIATE");
      setTimeout(() => end(other, stop), 50);
      yield jsonOf(fern({ id: 1_000 }));
    }

    expect(await importedFrom(database.path, chunks(), { stop: stop.signal })).toEqual({
      exitCode,
      stdout: "",
      stderr: `${stderr}\n`,
    });
  },
);

test("import into a database of a running server delays no request", async () => {
  using directory = emptyDirectory(memoryDirectory());
  await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
  const ledger = makeLedger();
  let id = 1n << 40n;
  let isOver = false;
  const next = () => (isOver ? undefined : fern({ id: id++, [TEXT]: "loaded" }));
  const load = startLoad({ url: server.url, connections: 8, ledger, next });

  writeFileSync(directory.at("lines"), linesOf(5_000).join(""));
  const run = await runToEnd({ args: ["import", "lines"], cwd: directory.path });
  expect(run).toEqual({
    exitCode: 0,
    stdout: "",
    stderr: "5,000 added, 0 already there, 0 refused\n",
  });

  isOver = true;
  const { responses, unanswered } = await load.end;
  expect({ kinds: Object.keys(responses), unanswered }).toEqual({ kinds: ["200"], unanswered: 0 });

  const stored = await exported(directory.at("plants.db"));
  expect(stored).toStartWith(linesOf(5_000).join(""));
  expect(stored.split("\n").length - 1).toBe(5_000 + ledger.acknowledgements());
});

test.skipIf(skipsShim())(
  "import onto a full disk keeps what it has added, and fails with one clear line",
  async () => {
    using disk = makeDisk({ shim: true });
    writeFileSync(join(disk.path, "lines"), linesOf(50_000).join(""));

    // From the 400th write on there is no space, for the checkpoint at the end neither: the line is
    // not about closing.
    disk.raise("sick");
    const server = disk.server({ faults: { failWrite: 400, errno: "ENOSPC" } });
    const run = await runToEnd({ ...server, args: ["import", "lines", ...(server.args ?? [])] });
    expect(run).toMatchObject({ exitCode: 1, stdout: "" });

    const [, line] =
      /\nCannot add plants after line (\d+): database or disk is full\n$/.exec(run.stderr) ?? [];
    expect(Number(line)).toBeGreaterThan(0);
    expect(await exported(disk.database)).toBe(linesOf(Number(line)).join(""));
  },
);

test("import of plants that are already there adds nothing", async () => {
  using database = await databaseFixture([]);
  const file = database.at("lines");
  writeFileSync(file, linesOf(30_000).join(""));
  await imported(database.path, file);

  const { stderr } = await imported(database.path, file);
  expect(stderr).toBe("0 added, 30,000 already there, 0 refused\n");
  expect(await exported(database.path)).toBe(linesOf(30_000).join(""));
});
