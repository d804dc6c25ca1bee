import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { type PostgresCluster, skipsCluster, startCluster } from "../../support/postgres.ts";
import { openDatabase } from "../../support/postgres_database.ts";
import { withCluster } from "../../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster())("probe()", () => {
  let cluster: PostgresCluster;
  withCluster((started) => (cluster = started));

  test.concurrent.each(["ACCESS EXCLUSIVE", "SHARE"])(
    "fails while a %s lock on the table keeps plants waiting",
    async (mode) => {
      await using database = await openDatabase(cluster);
      // A probe has a second, which is for no connection then.
      await database.add([{ id: 1n, name: "Fern" }]);
      await database.plants.probe();
      await using rival = database.connect();
      await rival.unsafe(`BEGIN; LOCK TABLE plants IN ${mode} MODE`).simple();
      await expect(database.plants.probe()).rejects.toMatchObject({ code: "storage_unavailable" });
      await rival.unsafe("COMMIT");
      await database.plants.probe();
    },
  );

  test.concurrent.each(["INSERT", "UPDATE"])("fails without the right to %s plants", async (right) => {
    const role = `lacks_${right.toLowerCase()}`;
    await cluster.run(`CREATE ROLE ${role} LOGIN`);
    await using database = await openDatabase(cluster, { role });
    await database.plants.probe();
    await database.run(`REVOKE ${right} ON plants FROM ${role}`);
    await expect(database.plants.probe()).rejects.toMatchObject({ code: "42501" });
  });

  test.concurrent.each(["fsync", "full_page_writes"])(
    "refuses plants from when %s was switched off by a reload, and takes them again when it is on",
    async (setting) => {
      await using own = await startCluster();
      await using database = await openDatabase(own);
      const add = (id: bigint) => database.add([{ id, name: "Fern" }]);
      // On connections of their own.
      await Promise.all([10n, 11n, 12n, 13n].map(add));
      await own.set(setting, "off");
      const refused = { code: "storage_unavailable", cause: { message: expect.stringContaining(`${setting} is off`) } };
      await expect(database.plants.probe()).rejects.toMatchObject(refused);
      await expect(add(2n)).rejects.toMatchObject(refused);
      await own.set(setting, "on");
      expect(await add(2n)).toEqual(["added"]);
      await database.plants.probe();
    },
  );
});
