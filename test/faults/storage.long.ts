import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, renameSync } from "node:fs";

import { makeTokens } from "../bench/prefilled.ts";
import { post, untilTokenIs } from "../support/client.ts";
import { fern, moss } from "../support/plants.ts";
import { exitCodeOf, LONG_TEST_TIMEOUT_MS, runToEnd, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { get, send, startOnDisk } from "./health.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

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

test("plants.db-wal that is replaced while the server runs ends it: no further plant is acknowledged", async () => {
  await using server = await startOnDisk();
  expect((await send(server.url, server.ledger, fern())).status).toBe(200);
  const wal = `${server.disk.database}-wal`;
  copyFileSync(wal, `${wal}.copy`);
  renameSync(`${wal}.copy`, wal);

  const response = await send(server.url, server.ledger, moss({ id: 2n }));
  expect(response).toMatchObject({
    status: 503,
    body: expect.stringContaining("storage is gone"),
  });
  expect(await exitCodeOf(server.child)).toBe(1);
});
