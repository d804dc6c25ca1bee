import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, renameSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { makeTokens } from "../bench/prefilled.ts";
import { post, untilTokenIs } from "../support/client.ts";
import { fill, skipsTmpfs, smallDisk } from "../support/disks.ts";
import { INTACT, makeLedger } from "../support/ledger.ts";
import { limited, newPlants, startLoad } from "../support/load.ts";
import { fern, moss } from "../support/plants.ts";
import { exitCodeOf, LONG_TEST_TIMEOUT_MS, runToEnd, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { get, requireReady, requireUnavailable, send, startOnDisk } from "./health.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const FERN = fern();

test.skipIf(skipsTmpfs())(
  "a full disk is reported as full, and plants are stored again once there is space",
  async () => {
    using disk = makeDisk({ shim: false });
    using _ = smallDisk(disk.path, "size=1m");
    const ballast = join(disk.path, "ballast");

    writeFileSync(ballast, new Uint8Array(400_000));
    await using server = await startServer(disk.server());
    const ledger = makeLedger();
    const next = newPlants("full disk");

    const load = startLoad({
      url: server.url,
      connections: 8,
      ledger,
      next: limited(next, 600),
      endOn: ["503/5032"],
    });

    expect(Object.keys((await load.end).responses).toSorted()).toEqual(["200", "503/5032"]);

    fill(join(disk.path, "filler"));
    // What is left of the WAL's last page may still take a commit or two.
    while ((await get(server.url, "/readyz")) === "200") await Bun.sleep(50);
    expect(await requireUnavailable(server.url, ledger, next())).toContain("storage is full");

    rmSync(ballast);
    await requireReady(server.url, ledger, next);
    expect(ledger.judge(disk.database)).toEqual(INTACT);
  },
);

test("a plant that waits for a lock past its deadline gets 503, and the next one is stored", async () => {
  await using server = await startOnDisk({ env: { REQUEST_TIMEOUT_MS: "500" } });
  const { disk, ledger } = server;
  using other = new Database(disk.database);
  other.run("BEGIN IMMEDIATE");

  expect(await requireUnavailable(server.url, ledger, FERN)).toMatch(
    /locked by another process|in time/,
  );

  other.run("ROLLBACK");
  await requireReady(server.url, ledger, () => FERN);

  server.requireIntact();
});

/** Holds SQLite's lock on the file that its argument names, until it is killed. */
const HOLDER = `
  const client = new (require("bun:sqlite").Database)(process.argv[1]);
  client.run("BEGIN IMMEDIATE");
  console.log("held");
  setInterval(() => client, 1_000);`;

test.each([0, 100_000])(
  "a token beside %d others is refused within 5 s of its revocation while another process holds the lock",
  async (others) => {
    using disk = makeDisk({ shim: false });
    if (others > 0) makeTokens(disk.path, others);
    const token = (...args: string[]) => runToEnd({ ...disk.server(), args: ["token", ...args] });
    const secret = (await token("create", "greenhouse")).stdout.trim();
    await using server = await startServer(disk.server({ env: { REQUEST_TIMEOUT_MS: "5000" } }));
    await untilTokenIs(200, server.url, secret);

    await token("revoke", "greenhouse");
    const revokedAt = performance.now();
    const holder = Bun.spawn([process.execPath, "-e", HOLDER, disk.database], { stdout: "pipe" });
    await holder.stdout.getReader().read();

    const seen: { readonly sentMs: number; readonly status: number }[] = [];
    const sending: Promise<unknown>[] = [];

    for (let sentMs = 0; sentMs < 20_000; sentMs = performance.now() - revokedAt) {
      if (seen.some(({ status }) => status === 401)) break;
      const sent = post(server.url, undefined, { token: secret }).then(({ status }) =>
        seen.push({ sentMs, status }),
      );
      // The probe waits for the lock as well.
      sending.push(sent, get(server.url, "/readyz"));
      await Bun.sleep(100);
    }

    await Promise.all(sending);
    holder.kill();
    const acceptedMs = Math.max(
      0,
      ...seen.filter(({ status }) => status !== 401).map(({ sentMs }) => sentMs),
    );
    console.log(
      `a revoked token beside ${others} others: accepted for ${Math.round(acceptedMs)} ms`,
    );

    expect(acceptedMs).toBeLessThan(5_000);
  },
);

/** Another file with the same content in the place of one. */
function replace(file: string): void {
  copyFileSync(file, `${file}.copy`);
  renameSync(`${file}.copy`, file);
}

test("plants.db that is unlinked while the server runs is noticed: it acknowledges no further plant, and goes on, because a restart would create an empty database", async () => {
  await using server = await startOnDisk();
  expect((await send(server.url, server.ledger, FERN)).status).toBe(200);
  rmSync(server.disk.database);
  expect(await requireUnavailable(server.url, server.ledger, moss({ id: 2n }))).toContain(
    "storage is gone",
  );
});

test.each([
  ["plants.db", replace],
  ["plants.db-wal", (database: string) => replace(`${database}-wal`)],
])(
  "%s that is replaced while the server runs ends it: no further plant is acknowledged",
  async (_, change) => {
    await using server = await startOnDisk();
    expect((await send(server.url, server.ledger, FERN)).status).toBe(200);
    change(server.disk.database);
    const response = await send(server.url, server.ledger, moss({ id: 2n }));
    expect(response).toMatchObject({
      status: 503,
      body: expect.stringContaining("storage is gone"),
    });
    expect(await exitCodeOf(server.child)).toBe(1);
  },
);

test.each([
  [
    "with garbage after its end and a stale -shm starts normally, with every plant",
    0,
    (database: string) => {
      writeFileSync(`${database}-wal`, new Uint8Array(5_000).fill(7), { flag: "a" });
      writeFileSync(`${database}-shm`, new Uint8Array(32_768).fill(7));
    },
  ],
  [
    "whose tail is cut off starts normally: only what the tail held is missing",
    // The last of some 25 batches or more.
    4,
    (database: string) => truncateSync(`${database}-wal`, statSync(`${database}-wal`).size - 1_000),
  ],
])("a WAL of a killed server %s", async (_, mostLost, change) => {
  using disk = makeDisk({ shim: false });
  const ledger = makeLedger();
  {
    await using server = await startServer(disk.server());
    const next = limited(newPlants("killed server"), 100);
    await startLoad({ url: server.url, connections: 4, ledger, next }).end;
  }
  change(disk.database);

  await using server = await startServer(disk.server());
  await requireReady(server.url, ledger, () => FERN);

  const verdict = ledger.judge(disk.database);
  expect({ ...verdict, lost: 0 }).toEqual(INTACT);
  expect(verdict.lost).toBeLessThanOrEqual(mostLost);
});
