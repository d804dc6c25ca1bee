import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { connectPostgres } from "../../../src/adapters/postgres/connector.ts";
import { stillWorks } from "../../../src/adapters/postgres/session.ts";
import { parsePostgresUrl } from "../../../src/adapters/postgres/url.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../../support/postgres.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster())("stillWorks()", () => {
  // In a container the numbers of processes begin anew, and PostgreSQL hides all but the number of another user's.
  test("takes no process of a server that was started again for one from before", async () => {
    await using cluster = await startCluster();
    await cluster.run("CREATE ROLE app LOGIN");
    const connect = () =>
      connectPostgres(parsePostgresUrl(cluster.url("postgres", "app")), { writable: true, timeoutMs: TEST_TIMEOUT_MS });
    const { backend } = await connect();
    await cluster.kill();
    await cluster.restart();
    const pid = await walWriter(cluster);
    const other = await connect();
    expect(await stillWorks({ ...backend, pid }, other)).toBe(false);
    expect(await stillWorks({ ...backend, startedAt: "", pid }, other)).toBe(false);
    expect(await stillWorks({ ...other.backend, startedAt: "", pid }, other)).toBe(true);
    other.close();
  });
});

/** The number of a process that waits for no client. After a start it may not be there yet. */
async function walWriter(cluster: PostgresCluster): Promise<number> {
  for (;;) {
    const [process] = await cluster.run("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
    if (process !== undefined) return Number(process["pid"]);
    await Bun.sleep(5);
  }
}
