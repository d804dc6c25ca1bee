import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { symlinkSync } from "node:fs";

import { blocks } from "../support/guides.ts";
import { RUNTIMES_MODULES } from "../support/module_runtimes.ts";
import { failingTests, failuresIn, repositoryCopy } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** What knows every room: the tables of rooms, settings and metrics, and the pages. */
const TABLES_TESTS = [
  "test/architecture.test.ts",
  "test/settings",
  "test/telemetry",
  "test/server",
  "test/build",
  "test/program/guides.test.ts",
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
    {
      rooms: ["Citus", "PostgreSQL"],
      files: [
        "test/commands",
        "test/database",
        "test/faults/same_bytes.test.ts",
        "test/program/kubernetes.test.ts",
        "test/program/secrets.test.ts",
      ],
    },
  ])(
    "without $rooms the code passes its checks, and the tests that know its rooms and pages",
    async ({ rooms, files }) => {
      using copy = repositoryCopy();
      symlinkSync(RUNTIMES_MODULES, copy.at("test/runtimes/node_modules"));
      const commit = () =>
        Bun.$`git add --all -- ":!node_modules"
          git -c user.name=Fork -c user.email=fork@example.org commit --quiet --message Fork`
          .cwd(copy.path)
          .quiet();
      await Bun.$`git init --quiet`.cwd(copy.path);
      await commit();
      for (const room of rooms) {
        const [commands = ""] = blocks(`Without ${room}`, "bash");
        await Bun.$`bash -euo pipefail -c ${commands}`.cwd(copy.path).quiet();
        await commit();
      }

      const { exitCode } = await Bun.$`bun run check:static`.cwd(copy.path).quiet().nothrow();
      expect(exitCode).toBe(0);
      expect(await failuresIn(copy.path, [...TABLES_TESTS, ...files])).toEqual([]);
      expect(await failingTests(copy.path, METRICS_TEST.file, METRICS_TEST.name)).toEqual([]);
    },
  );
});
