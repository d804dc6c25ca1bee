import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { connectPostgres } from "../../../src/database/postgres/connector.ts";
import { stillWorks } from "../../../src/database/postgres/session.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { skipsCluster, startCluster } from "../../support/postgres.ts";
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
    await using rival = cluster.connect();
    await rival.unsafe("BEGIN");
    const [{ pid }] = await rival.unsafe("SELECT pg_backend_pid() AS pid");
    const other = await connect();
    expect(await stillWorks({ ...backend, pid }, other)).toBe(false);
    expect(await stillWorks({ ...backend, startedAt: "", pid }, other)).toBe(false);
    expect(await stillWorks({ ...other.backend, startedAt: "", pid }, other)).toBe(true);
    await rival.unsafe("COMMIT");
    expect(await stillWorks({ ...other.backend, startedAt: "", pid }, other)).toBe(false);
    other.close();
  });
});
