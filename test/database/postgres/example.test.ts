import { describe, expect, test } from "bun:test";

import { skipsCluster } from "../../support/postgres.ts";
import { openDatabase, withCluster } from "../../support/postgres_database.ts";

describe.skipIf(skipsCluster())("a database on PostgreSQL", () => {
  const cluster = withCluster();

  test("a plant that was deleted with SQL can be added again", async () => {
    await using database = await openDatabase(cluster());
    const fern = { id: 1n, name: "Fern" };
    expect(await database.add([fern])).toEqual(["added"]);

    await database.run("DELETE FROM plants");

    expect(await database.add([fern])).toEqual(["added"]);
  });
});
