import { describe, expect, setDefaultTimeout, test } from "bun:test";

import { blocks } from "../support/guides.ts";
import {
  failingTests,
  failuresIn,
  failuresOfOk,
  linkPackages,
  repositoryCopy,
} from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(4 * LONG_TEST_TIMEOUT_MS);

/** What knows every room: the tables of rooms, settings, exports and licenses, and the pages. */
const TABLES_TESTS = [
  "test/architecture.test.ts",
  "test/settings",
  "test/build/licenses.test.ts",
  "test/module/public_exports.test.ts",
  "test/program/guides.test.ts",
];

/** Which metrics there are, by a server, its alerts and its guide. */
const METRICS_TEST = {
  file: "test/program/operator.test.ts",
  name: "the scrape configuration and the alerts name what there is",
};

/** A copy of the repository without these rooms, to the end of the scope. */
async function copyWithout(rooms: readonly string[]) {
  const copy = repositoryCopy();
  linkPackages(copy.path);
  await Bun.$`git init --quiet`.cwd(copy.path);
  const commit = () =>
    Bun.$`git add --all -- ":!node_modules" ":!*/node_modules"
      git -c user.name=Fork -c user.email=fork@example.org commit --quiet --message Fork`
      .cwd(copy.path)
      .quiet();
  await commit();

  const [always = ""] = blocks("Take a room out", "bash");
  for (const room of rooms) {
    const [commands = ""] = blocks(`Without ${room}`, "bash");
    await Bun.$`bash -euo pipefail -c ${commands + always}`.cwd(copy.path).quiet();
    await commit();
  }
  return copy;
}

describe("Take a room out", () => {
  test.each([[["Citus"]], [["OpenTelemetry"]], [["JWTs"]], [["Citus", "PostgreSQL"]]])(
    "without %j the code passes its checks, and the tests of its tables and pages",
    async (rooms) => {
      using copy = await copyWithout(rooms);
      const { exitCode } = await Bun.$`bun run check:static`.cwd(copy.path).quiet().nothrow();
      expect(exitCode).toBe(0);
      expect(await failuresIn(copy.path, TABLES_TESTS)).toEqual([]);
      expect(await failingTests(copy.path, METRICS_TEST.file, METRICS_TEST.name)).toEqual([]);
    },
  );

  test("without all of them, what `bun run ok` runs is green", async () => {
    using copy = await copyWithout(["OpenTelemetry", "JWTs", "Citus", "PostgreSQL"]);
    expect(await failuresOfOk(copy.path)).toEqual([]);
  });
});
