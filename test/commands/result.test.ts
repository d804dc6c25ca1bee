import { expect, setDefaultTimeout, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";

import { corruptionMarker } from "../../src/database/sqlite/markers.ts";
import { TOKEN } from "../support/client.ts";
import { damage, makeLargeDatabase } from "../support/damage.ts";
import { databaseFixture, filesIn } from "../support/database_fixture.ts";
import { table } from "../support/guides.ts";
import { fern, ivy, jsonOf, TEXT } from "../support/plants.ts";
import { runToEnd, start, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { shell } from "../support/shell.ts";
import { exported, runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const LINES = `${jsonOf(fern())}\n${jsonOf(ivy({ id: 9223372036854775807n }))}\n`;

/** A directory with `plants.db`, a sound backup of it, and two lines to import. */
async function world() {
  const database = await databaseFixture([fern()]);
  const { at, directory: cwd } = database;
  const call = (...args: string[]) => runToEnd({ cwd, args: [...args, "--json"] });
  await runToEnd({ cwd, args: ["backup", "saved.db"] });
  writeFileSync(at("lines"), LINES);
  return { ...database, call, bytes: statSync(at("saved.db")).size };
}

/** Lines to import, of new plants. */
function linesOf(count: number): string {
  const ids = Array.from({ length: count }, (_, index) => index + 1_000);
  return ids.map((id) => `${jsonOf(fern({ id, [TEXT]: `plant ${id}` }))}\n`).join("");
}

/** The end of a command that was started, once it has ended. */
async function endOf(run: ReturnType<typeof start>) {
  const exitCode = await run.child.exited;
  return { exitCode, stdout: await run.stdout, stderr: await run.stderr.end };
}

/** The end of a command whose only output is this line of JSON. */
function printed(result: object) {
  return { exitCode: 0, stdout: `${JSON.stringify(result)}\n`, stderr: "" };
}

/** The members of an import without `--tokens`. */
const NO_TOKENS = { validTokens: [], revokedTokens: [], refusedTokens: [] };

/** The end of a command that fails with this line, or with one that begins so, and no JSON. */
function failed(line: string, exitCode = 1) {
  const stderr = expect.stringMatching(new RegExp(`^${RegExp.escape(line)}[^\n]*\n$`));
  return { exitCode, stdout: "", stderr };
}

test("on a terminal, a result comes after what was written to stderr", async () => {
  using here = await world();
  const order: string[] = [];
  const { exitCode } = await runCommand(
    ["check", "--database", here.at("plants.db")],
    {},
    {
      // stderr and stdout are written independently.
      printed: async () => void order.push("printed"),
      write: async (text) => void order.push(text),
    },
  );

  expect(exitCode).toBe(0);
  expect(order).toEqual(["printed", expect.stringContaining(" is sound: ")]);
});

test("with --json, check, backup, import and restore print one object on one line, and no message", async () => {
  using here = await world();
  const { bytes } = here;
  const database = "plants.db";

  const { stdout } = await runToEnd({ cwd: here.directory, args: ["check"] });
  const pages = Number(/(\d+) pages/.exec(stdout)?.[1]);
  expect(await here.call("check")).toEqual(printed({ database, plants: 1, pages }));

  expect(await here.call("backup", "new.db")).toEqual(
    printed({ database, file: "new.db", plants: 1, bytes, deleted: [] }),
  );
  expect(await here.call("import", "lines")).toEqual(
    printed({ database, file: "lines", added: 1, present: 1, refused: 0, ...NO_TOKENS }),
  );

  const restored = await here.call("restore", "saved.db");
  const { replaced } = JSON.parse(restored.stdout);
  const tokens = { endedTokens: 0, unconfirmedTokens: [] };
  expect(restored).toEqual(
    printed({ database, file: "saved.db", plants: 1, bytes, replaced, ...tokens }),
  );
  expect(replaced).toStartWith(here.at("plants.db-replaced-"));
});

test("with --json, an empty database has zeros, and a restore to a new path has replaced nothing", async () => {
  using empty = await databaseFixture([]);
  const call = (...args: string[]) => runToEnd({ cwd: empty.directory, args: [...args, "--json"] });
  const parsed = async (...args: string[]) => JSON.parse((await call(...args)).stdout);

  expect(await parsed("check")).toMatchObject({ plants: 0 });
  expect(await parsed("backup", "saved.db")).toMatchObject({ plants: 0 });
  expect(await parsed("import", "-")).toMatchObject({ added: 0, present: 0, refused: 0 });
  expect(await parsed("restore", "saved.db", "--database", "new.db")).toMatchObject({
    database: "new.db",
    plants: 0,
    replaced: null,
  });
});

test("the operating guide lists the members of each object", async () => {
  using here = await world();
  const documented = table("Results for programs").map((cells) =>
    cells.slice(0, 2).map((cell) => cell.replaceAll("`", "")),
  );
  const commands = [["import", "lines"], ["backup", "new.db"], ["restore", "saved.db"], ["check"]];
  const real: string[][] = [];

  for (const words of commands) {
    const { stdout } = await here.call(...words);
    real.push([words[0] ?? "", Object.keys(JSON.parse(stdout)).join(", ")]);
  }

  expect(documented).toEqual(real);
});

test("with --json, a refused line is reported on stderr, counted in the object, and exits with 1", async () => {
  using here = await world();
  writeFileSync(here.at("lines"), `secret\n${LINES}${jsonOf(ivy())}\n`);
  const result = {
    database: "plants.db",
    file: "lines",
    added: 1,
    present: 1,
    refused: 2,
    ...NO_TOKENS,
  };
  expect(await here.call("import", "lines")).toEqual({
    exitCode: 1,
    stdout: `${JSON.stringify(result)}\n`,
    stderr:
      "line 1: the line must be valid JSON; it breaks at column 1\n" +
      "line 4: `id` is taken by a different plant; choose another id\n",
  });
});

test("with --json, a corrupt database or backup fails with one line on stderr, and no JSON", async () => {
  using here = await world();
  makeLargeDatabase(here.at("bad.db"), 20_000);
  damage(here.at("bad.db"), "flipped bits in a page in the middle");

  expect(await here.call("check", "--database", "bad.db")).toEqual(failed('"bad.db" is corrupt: '));
  expect(await here.call("restore", "bad.db")).toEqual(
    failed('Cannot restore "bad.db": it is corrupt: '),
  );

  corruptionMarker(here.path).write("found before");
  expect(await here.call("backup", "new.db")).toEqual(failed('Cannot copy database "plants.db": '));
  expect(await here.call("import", "lines")).toEqual(failed('Cannot open database "plants.db": '));
});

test.each([
  ["backup saved.db", 'Cannot back up to "saved.db": file already exists', 1],
  ["import missing", 'Cannot read "missing": no such file or directory', 1],
  ["restore missing", 'Cannot restore "missing": no such file or directory', 1],
  ["check --database missing", 'Cannot open database "missing": there is no such file', 1],
])("with --json, %s is refused on stderr, and prints no JSON", async (command, line, exitCode) => {
  using here = await world();
  expect(await here.call(...command.split(" "))).toEqual(failed(line, exitCode));
});

test("with --json, a usage error is exit code 2, and prints no JSON", async () => {
  using here = await world();
  const stderr = "error: missing required argument 'source'\nSee plant-store import --help\n";
  expect(await here.call("import")).toEqual({ exitCode: 2, stdout: "", stderr });
});

test("with --json, a restore while a server runs is refused on stderr", async () => {
  using here = await world();
  await using _ = await startServer({ cwd: here.directory, env: { AUTH_TOKENS: TOKEN } });
  expect(await here.call("restore", "saved.db")).toEqual(
    failed('Cannot replace database "plants.db": plant-store (process '),
  );
});

test("with --json, an import that SIGINT interrupts prints no JSON, and says how far it got", async () => {
  using here = await world();
  const pipe = here.at("pipe");
  expect(Bun.spawnSync(["mkfifo", pipe]).exitCode).toBe(0);
  const program = shell('exec "$@" < pipe');
  await using run = start({ program, args: ["import", "-", "--json"], cwd: here.directory });

  // A pipe opens when its reader is there. This one does not end before the signal.
  await using writer = await open(pipe, "w");
  await writer.write(linesOf(1_500));
  // The first batch is committed.
  const isImported = async () => (await exported(here.path)).split("\n").length > 1_000;
  while (!(await isImported()) && run.child.exitCode === null) await Bun.sleep(5);

  run.child.kill("SIGINT");
  expect(await endOf(run)).toEqual(failed("Stopped after line 1"));
});

test("with --json, a backup that is stopped prints no JSON, and leaves no file", async () => {
  using here = await world();
  const files = filesIn(here.directory);
  const stop = new AbortController();
  const args = ["backup", here.at("new.db"), "--json"];
  const run = runCommand(args, { DATABASE_URL: here.path }, { stop: stop.signal });
  stop.abort();
  expect(await run).toEqual(failed("Stopped: no backup was made"));
  expect(filesIn(here.directory)).toEqual(files);
});

test("a path cannot add a line or an escape sequence to the JSON", async () => {
  using here = await world();
  const file = "a\n\u001b[31m.db";
  const { stdout } = await here.call("backup", file);
  expect(stdout).toMatch(/^[^\p{Cc}]+\n$/u);
  expect(JSON.parse(stdout)).toMatchObject({ file });
});
