import { afterAll, beforeAll, beforeEach } from "bun:test";

import { type ClusterOptions, type PostgresCluster, startCluster } from "./postgres.ts";

/** Starts a cluster for the tests of a `describe`. */
export function withCluster(
  use: (cluster: PostgresCluster) => void,
  options?: ClusterOptions,
): void {
  let cluster: PostgresCluster | undefined;
  beforeAll(async () => {
    cluster = await startCluster(options);
    use(cluster);
  });
  afterAll(() => cluster?.[Symbol.asyncDispose]());
}

/** Likewise, and gives it to each of them with an empty database. */
export function withEmptyDatabase(
  use: (cluster: PostgresCluster, url: string) => void,
  options?: ClusterOptions,
): void {
  let cluster: PostgresCluster | undefined;
  withCluster((started) => (cluster = started), options);
  beforeEach(async () => {
    if (cluster !== undefined) use(cluster, await cluster.emptyDatabase());
  });
}
