import { describe, setDefaultTimeout, test } from "bun:test";
import { chmodSync } from "node:fs";
import { join } from "node:path";

import { servePod, skipsPods } from "../support/pod.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, ROOT, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsPods() || skipsCluster())("with no rights, and on a read-only system", () => {
  const cluster = withCluster();

  test("the pod on PostgreSQL starts on an empty database with the URL of its Secret", async () => {
    await using database = await cluster().newDatabase();
    using home = emptyDirectory();
    chmodSync(home.path, 0o755);
    await Bun.write(home.at("database-url"), `${database.url}\n`);

    const manifest = join(ROOT, "src/server/kubernetes_postgresql.yaml");
    await servePod(manifest, { "/etc/plant-store": home.path });
  });
});
