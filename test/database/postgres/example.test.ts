import { describe, expect, test } from "bun:test";

import { fern } from "../../support/plants.ts";
import { skipsCluster } from "../../support/postgres.ts";
import { openDatabase, withCluster } from "../../support/postgres_database.ts";

describe.skipIf(skipsCluster())("a database on PostgreSQL", () => {
  const cluster = withCluster();

  test("a plant that was deleted with SQL can be added again", async () => {
    await using database = await openDatabase(cluster());
    expect(await database.add([fern()])).toEqual(["added"]);

    await database.run("DELETE FROM plants");

    expect(await database.add([fern()])).toEqual(["added"]);
  });
});
