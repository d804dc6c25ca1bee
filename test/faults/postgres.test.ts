import { describe, expect, test } from "bun:test";

import { fern, moss } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { startProxy } from "../support/tcp_proxy.ts";
import { openService, through } from "./postgres.ts";

const FERN = fern();
const MOSS = moss({ id: 2n });

describe.skipIf(skipsCluster())("batches on PostgreSQL", () => {
  const cluster = withCluster({ settings: { deadlock_timeout: "100ms" } });

  test.concurrent(
    "a commit whose reply is lost is sent again, and found to be stored",
    async () => {
      const { url, run } = await cluster().newDatabase();
      using proxy = startProxy(cluster().port);
      await using service = await openService(through(proxy, url));
      expect(await service.add(FERN)).toBe("added");
      // A busy machine opens another connection for it, whose reply would be the lost one.
      while (service.metric("connections_busy") > 0) await Bun.sleep(1);

      proxy.set("lose the reply");
      const added = service.add(MOSS);
      while (proxy.lost() === 0) await Bun.sleep(1);
      expect(await run("SELECT id FROM plants WHERE id = 2")).toHaveLength(1);

      proxy.set("forward");
      expect(await added).toBe("present");
      expect(service.metric("retries_total")).toBeGreaterThan(0);
      expect(service.metric("reconnections_total")).toBeGreaterThan(0);
    },
  );

  test("overlapping batches never deadlock, whatever the order of their plants", async () => {
    const { url, run } = await cluster().newDatabase();
    await using one = await openService(url);
    await using other = await openService(url);
    const plants = Array.from({ length: 600 }, (_, index) => fern({ id: index }));

    for (let round = 0; round < 5; round++) {
      await run("TRUNCATE plants");
      const batches = [plants, plants.toReversed(), plants, plants.toReversed()];
      const adds = batches.map((batch, index) =>
        (index < 2 ? one : other).plants.add(batch, { timeoutMs: TEST_TIMEOUT_MS }),
      );
      expect(
        (await Promise.all(adds)).flat().filter((outcome) => outcome === "added"),
      ).toHaveLength(600);
    }

    expect(one.metric("retries_total") + other.metric("retries_total")).toBe(0);
  });
});
