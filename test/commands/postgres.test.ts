import { expect, test } from "bun:test";
import { existsSync } from "node:fs";

import { CLOSED_PORT } from "../support/client.ts";
import { emptyDirectory, memoryDirectory } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

const DATABASE_URL = `postgres://me@127.0.0.1:${CLOSED_PORT}/plants`;
const ON_CITUS = DATABASE_URL.replace("postgres", "citus");

test.each([
  ["check", DATABASE_URL, "Cannot check PostgreSQL: use pg_amcheck"],
  ["check --json", DATABASE_URL, "Cannot check PostgreSQL: use pg_amcheck"],
  [
    "restore x",
    ON_CITUS,
    "Cannot restore Citus: use plant-store import --tokens, or restore each server to one restore point",
  ],
  ["check", ON_CITUS, "Cannot check Citus: use pg_amcheck on each server"],
])("%s on %s is refused in one line that names the means", async (command, url, line) => {
  expect(await runCommand(command.split(" "), { DATABASE_URL: url })).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: `${line}\n`,
  });
});

test("serve --check is exit code 2, and one line, for a server that cannot be reached", async () => {
  const ended = await runCommand(["serve", "--check"], { DATABASE_URL });
  expect(ended).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: expect.stringMatching(/^Cannot open database "plants": .*\n$/),
  });
});

test.each([
  ["postgres://me:secret@", 2, /^Cannot use the source: [^\n]+\n$/],
  [
    `postgres://me:secret@127.0.0.1:${CLOSED_PORT}/plants`,
    1,
    /^Cannot open database "plants": [^\n]+\n$/,
  ],
])(
  "import of %s is refused, without its password, and makes no database",
  async (source, exitCode, says) => {
    using directory = emptyDirectory(memoryDirectory());
    const path = directory.at("plants.db");
    const { stderr, ...rest } = await runCommand(["import", source], { DATABASE_URL: path });
    expect(rest).toEqual({ exitCode, stdout: "" });
    expect(stderr).toMatch(says);
    expect(stderr).not.toContain("secret");
    expect(existsSync(path)).toBe(false);
  },
);
