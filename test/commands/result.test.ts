import { expect, setDefaultTimeout, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";

import { databaseFixture } from "../support/database_fixture.ts";
import { table } from "../support/guides.ts";
import { fern, ivy, jsonOf } from "../support/plants.ts";
import { runToEnd, TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

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

/** The end of a command whose only output is this line of JSON. */
function printed(result: object) {
  return { exitCode: 0, stdout: `${JSON.stringify(result)}\n`, stderr: "" };
}

/** The members of an import without `--tokens`. */
const NO_TOKENS = { validTokens: [], revokedTokens: [], refusedTokens: [] };

/** The end of a command that fails with this line, or with one that begins so, and no JSON. */
function failed(line: string) {
  const stderr = expect.stringMatching(new RegExp(`^${RegExp.escape(line)}[^\n]*\n$`));
  return { exitCode: 1, stdout: "", stderr };
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

test("with --json, import, backup, restore and check print one object on one line, with the members that the guide lists", async () => {
  using here = await world();
  const { bytes } = here;
  const database = "plants.db";

  const { stdout } = await runToEnd({ cwd: here.directory, args: ["check"] });
  const pages = Number(/(\d+) pages/.exec(stdout)?.[1]);
  const check = { database, plants: 1, pages };
  expect(await here.call("check")).toEqual(printed(check));

  const backup = { database, file: "new.db", plants: 1, bytes, deleted: [] };
  expect(await here.call("backup", "new.db")).toEqual(printed(backup));
  const lines = { database, file: "lines", added: 1, present: 1, refused: 0, ...NO_TOKENS };
  expect(await here.call("import", "lines")).toEqual(printed(lines));

  const restored = await here.call("restore", "saved.db");
  const { replaced } = JSON.parse(restored.stdout);
  const tokens = { endedTokens: 0, unconfirmedTokens: [] };
  const restore = { database, file: "saved.db", plants: 1, bytes, replaced, ...tokens };
  expect(restored).toEqual(printed(restore));
  expect(replaced).toStartWith(here.at("plants.db-replaced-"));

  const members = Object.entries({ import: lines, backup, restore, check }).map(
    ([command, result]) => [command, Object.keys(result).join(", ")],
  );
  const documented = table("Results for programs").map((cells) =>
    cells.slice(0, 2).map((cell) => cell.replaceAll("`", "")),
  );
  expect(documented).toEqual(members);
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

test("with --json, a refused line is reported on stderr, counted in the object, and exits with 1", async () => {
  using here = await world();
  writeFileSync(here.at("lines"), `${LINES}secret\n${jsonOf(ivy())}\n`);
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
      "line 3: the line must be valid JSON; syntax error at column 1\n" +
      "line 4: `id` is taken by a different plant; choose another id\n",
  });
});

test("with --json, a failure is told on stderr, and prints no JSON", async () => {
  using here = await world();
  const line = 'Cannot restore "missing": no such file or directory';
  expect(await here.call("restore", "missing")).toEqual(failed(line));
});

test("a path cannot add a line or an escape sequence to the JSON", async () => {
  using here = await world();
  const file = "a\n\u001b[31m.db";
  const { stdout } = await here.call("backup", file);
  expect(stdout).toMatch(/^[^\p{Cc}]+\n$/u);
  expect(JSON.parse(stdout)).toMatchObject({ file });
});
