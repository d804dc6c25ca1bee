/** The lines of the page about failover start no server after one of them has failed. */
import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";

import { blocks } from "../support/guides.ts";
import { emptyDirectory, runToEnd } from "../support/program.ts";

const [, , COPY = ""] = blocks("Make a standby", "sh");
const [, REWIND = ""] = blocks("The old primary", "sh");

/** Runs lines where one program fails, and gives what systemctl was told. */
async function follow(lines: string, failing: string, directory: string): Promise<string> {
  const script = `
    systemctl() { echo "$1"; }
    sudo() { shift 2; "$@"; }
    tee() { cat > /dev/null; }
    pg_basebackup() { mkdir main; }
    pg_rewind() { :; }
    ${failing}() { return 1; }
    ${lines.replaceAll(/\/(?:usr\/lib\/postgresql\/15\/bin|var\/lib\/postgresql\/15)\//g, "")}`;
  return (await runToEnd({ program: ["sh", "-c", script], cwd: directory })).stdout;
}

/** A directory with the data of an old primary, and with what an earlier time has left. */
function oldPrimary() {
  const directory = emptyDirectory();
  for (const path of ["main", "main.old/main"]) {
    mkdirSync(directory.at(path), { recursive: true });
    writeFileSync(directory.at(`${path}/PG_VERSION`), "15\n");
  }
  return directory;
}

test.each([
  ["mv", COPY, "stop\n"],
  ["pg_basebackup", COPY, "stop\n"],
  ["nothing", COPY, "stop\nstart\n"],
  ["pg_rewind", REWIND, ""],
  ["tee", REWIND, ""],
  ["nothing", REWIND, "start\n"],
])("if %s fails, the old primary is started only as a standby", async (failing, lines, told) => {
  using directory = oldPrimary();
  expect(await follow(lines, failing, directory.path)).toBe(told);
});
