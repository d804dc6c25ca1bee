import { expect, setDefaultTimeout, test } from "bun:test";

import { INTACT, makeLedger, printed } from "../support/ledger.ts";
import { fern } from "../support/plants.ts";
import { type PostgresCluster, skipsCluster, startCluster } from "../support/postgres.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { startProxy } from "../support/tcp_proxy.ts";
import { judge, openService } from "./postgres.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const FERN = fern({ id: 0n });
const PLANTS = range(1, 20).map((id) => ({ id: BigInt(id), name: "first" }));

/** The standby with the most WAL, as the guide says, or the one that lags. */
type Promoted = "by LSN" | "the one that lags";

test.skipIf(skipsCluster()).each<[names: string, Promoted, acknowledged: number, lost: number]>([
  ["ANY 1 (b, c)", "by LSN", 20, 0],
  // The control. The same holds if b cannot be asked.
  ["ANY 1 (b, c)", "the one that lags", 20, 20],
  ["ANY 2 (b, c)", "the one that lags", 0, 0],
])(
  "of two standbys one lags, and the primary is lost: with %s, promoting %s",
  async (names, promoted, acknowledged, lost) => {
    await using primary = await startCluster();
    using toPrimary = startProxy(primary.port);
    await using b = await startCluster({ primary, name: "b" });
    await using c = await startCluster({ primary: toPrimary, name: "c" });
    await primary.set("synchronous_standby_names", names);

    const hosts = [primary, b, c].map(({ port }) => `127.0.0.1:${port}`);
    const url = `postgres://postgres@${hosts.join()}/postgres`;
    await using service = await openService(url);
    const ledger = makeLedger();
    // Both have the tables and the first plant.
    ledger.attempt(FERN);
    await service.add(FERN);
    ledger.acknowledge(FERN);
    while ((await receivedBy(c)) < (await receivedBy(b))) await Bun.sleep(5);

    toPrimary.set("black hole");
    PLANTS.forEach(ledger.attempt);
    const timeoutMs = acknowledged > 0 ? LONG_TEST_TIMEOUT_MS : 1_000;
    const adding = service.plants.add(PLANTS, { timeoutMs });
    const isAdded = await adding.then(
      () => true,
      () => false,
    );
    if (isAdded) PLANTS.forEach(ledger.acknowledge);
    expect(isAdded).toBe(acknowledged > 0);

    await primary.kill();
    const standbys = [
      { standby: b, received: await receivedBy(b) },
      { standby: c, received: await receivedBy(c) },
    ].toSorted((one, other) => Number(other.received - one.received));
    expect(standbys[0]?.standby).toBe(b);

    const next = promoted === "by LSN" ? standbys[0]?.standby : c;
    await next?.run("SELECT pg_promote()");
    const nextUrl = next?.url("postgres") ?? "";
    const size = `${names}, ${promoted}: ${ledger.acknowledgements()} acknowledged`;
    expect(printed("two standbys", size, await judge(nextUrl, ledger))).toEqual({
      ...INTACT,
      lost,
    });

    if (lost > 0) {
      // The ids are free: another plant gets a 200 under each.
      const others = PLANTS.map(({ id }) => ({ id, name: "second" }));
      const outcomes = await service.plants.add(others, { timeoutMs: LONG_TEST_TIMEOUT_MS });
      expect(new Set(outcomes)).toEqual(new Set(["added"]));
    }
  },
);

/** How far in the WAL a standby is, in bytes. */
async function receivedBy(standby: PostgresCluster): Promise<bigint> {
  const [row] = await standby.run(
    "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0' AS bytes",
  );
  return BigInt(String(row?.["bytes"]));
}
