import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { openPostgres } from "../../../src/adapters/postgres/database.ts";
import { parsePostgresUrl } from "../../../src/adapters/postgres/url.ts";
import { type PostgresCluster, skipsCluster } from "../../support/postgres.ts";
import { withEmptyDatabase } from "../../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster())("probe()", () => {
  let cluster: PostgresCluster;
  let url: string;
  withEmptyDatabase((started, empty) => ([cluster, url] = [started, empty]));

  test.each(["ACCESS EXCLUSIVE", "SHARE"])("fails while a %s lock on the table keeps plants waiting", async (mode) => {
    await using database = await openPostgres(parsePostgresUrl(url));
    await database.plants.probe();
    await using rival = cluster.connect();
    await rival.unsafe(`BEGIN; LOCK TABLE plants IN ${mode} MODE`).simple();
    await expect(database.plants.probe()).rejects.toMatchObject({ code: "storage_unavailable" });
    await rival.unsafe("COMMIT");
    await database.plants.probe();
  });

  test.each(["INSERT", "UPDATE"])("fails without the right to %s plants", async (right) => {
    await cluster.run(
      "DROP ROLE IF EXISTS limited",
      "CREATE ROLE limited LOGIN",
      "GRANT CREATE ON SCHEMA public TO limited",
    );
    const { host, pathname } = new URL(url);
    await using database = await openPostgres(parsePostgresUrl(`postgres://limited@${host}${pathname}`));
    await database.plants.probe();
    await cluster.run(`REVOKE ${right} ON plants FROM limited`);
    await expect(database.plants.probe()).rejects.toMatchObject({ code: "42501" });
    await cluster.run("DROP OWNED BY limited");
  });
});
