import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, chownSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";

import { untilTokenIs } from "../support/client.ts";
import { containerIn, execLines, skipsPods } from "../support/pod.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import {
  emptyDirectory,
  ROOT,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const manifest = (name: string) => join(ROOT, `src/server/kubernetes_${name}.yaml`);

describe.skipIf(skipsPods() || skipsCluster())("with no rights, and on a read-only system", () => {
  const cluster = withCluster();

  test("a pod on PostgreSQL starts after its first token only, by the URL of its Secret, and is backed up", async () => {
    await using database = await cluster().newDatabase();
    using volumes = await makeVolumes(database.url);
    const server = await containerIn(manifest("postgresql"), volumes.paths);
    expect(await runToEnd(server.start)).toMatchObject({ exitCode: 1 });

    const shell = await containerIn(manifest("postgresql_shell"), volumes.paths);
    const [create = []] = execLines("Start in Kubernetes");
    const created = await shell.exec(create);
    expect(created).toMatchObject({ exitCode: 0 });

    await using serving = await startServer(server.start);
    const token = created.stdout.trim();
    await untilTokenIs(200, serving.url, token);

    const { start } = await containerIn(manifest("postgresql_backup"), volumes.paths);
    expect(JSON.parse((await runToEnd(start)).stdout)).toMatchObject({ plants: 1, deleted: [] });
    expect(readdirSync(volumes.backups)).toHaveLength(1);
  });

  test("a claim moves to PostgreSQL with its token", async () => {
    await using database = await cluster().newDatabase();
    using volumes = await makeVolumes(database.url);
    const sqlite = await containerIn(manifest("sqlite_shell"), volumes.paths);
    const [create = []] = execLines("Start in Kubernetes");
    const created = await sqlite.exec(create);
    const [backup = [], restore = []] = execLines("Move a claim");
    expect(await sqlite.exec(backup)).toMatchObject({ exitCode: 0 });

    const shell = await containerIn(manifest("postgresql_shell"), volumes.paths);
    expect(await shell.exec(restore)).toMatchObject({ exitCode: 0 });
    const server = await containerIn(manifest("postgresql"), volumes.paths);
    await using serving = await startServer(server.start);
    const token = created.stdout.trim();
    await untilTokenIs(200, serving.url, token);
  });
});

/** The volumes of all pods, with the Secret. */
async function makeVolumes(url: string) {
  const home = emptyDirectory();
  chmodSync(home.path, 0o755);
  const paths = {
    "/data": home.at("data"),
    "/backups": home.at("backups"),
    "/etc/plant-store": home.at("secret"),
  };
  for (const path of Object.values(paths)) {
    mkdirSync(path);
    chownSync(path, 65_532, 65_532);
  }
  const backups = home.at("backups/db");
  mkdirSync(backups, { mode: 0o700 });
  chownSync(backups, 65_532, 65_532);
  await Bun.write(home.at("secret/database-url"), `${url}\n`);
  return { paths, backups, [Symbol.dispose]: () => home[Symbol.dispose]() };
}
