import { afterAll, beforeAll, beforeEach } from "bun:test";
import { type PostgresCluster, startCluster } from "./postgres.ts";

/** Starts a cluster for the tests of a `describe`, and gives it to each of them with an empty database. */
export function withEmptyDatabase(use: (cluster: PostgresCluster, url: string) => void): void {
  let cluster: PostgresCluster | undefined;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  beforeEach(async () => {
    if (cluster !== undefined) use(cluster, await cluster.emptyDatabase());
  });
  afterAll(() => cluster?.[Symbol.asyncDispose]());
}
