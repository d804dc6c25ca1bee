import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";

import { skipped } from "../support/missing.ts";
import { ROOT, runToEnd, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const SQLITE = join(ROOT, "src/server/kubernetes_sqlite.yaml");
const POSTGRESQL = join(ROOT, "src/server/kubernetes_postgresql.yaml");

/** Of PyPI: it has the schemas of Kubernetes inside. */
const VALIDATE = process.env["KUBERNETES_VALIDATE"] ?? "";

test.skipIf(
  !existsSync(VALIDATE) &&
    skipped("the schema of the manifests: KUBERNETES_VALIDATE names no program"),
)(
  "the manifests are valid for the Kubernetes that they name, and for the newest one, without unknown fields",
  async () => {
    for (const version of [["--kubernetes-version", "1.30"], []]) {
      const program = [VALIDATE, "--strict", "--quiet", ...version, SQLITE, POSTGRESQL];
      expect(await runToEnd({ program })).toMatchObject({ exitCode: 0, stdout: "", stderr: "" });
    }
  },
);
