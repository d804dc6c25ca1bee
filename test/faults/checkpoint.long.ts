import { expect, setDefaultTimeout, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { bearer, post } from "../support/client.ts";
import { limited } from "../support/load.ts";
import { fern, jsonOf, TEXT } from "../support/plants.ts";
import { LONG_TEST_TIMEOUT_MS, runToEnd } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { get, startOnDisk, stop } from "./health.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** So many plants fill more of the WAL than it takes for a checkpoint, 4,000 pages of 4 KiB. */
const PLANTS = 300;
const NAME = "x".repeat(60_000);

test.skipIf(skipsShim())(
  "a failed checkpoint is logged and counted, loses no plant, and a later one succeeds",
  async () => {
    await using server = await startOnDisk({ shim: true, faults: { errno: "ENOSPC" } });
    const { url, stderr, disk } = server;
    let id = 0n;
    const next = () => fern({ id: id++, [TEXT]: NAME });
    const store = () => server.load({ connections: 8, next: limited(next, PLANTS) }).end;

    const failures = async () => {
      const metrics = await (await fetch(`${url}/metrics`, { headers: bearer() })).text();
      return Number(/^plant_store_checkpoint_failures_total (\d+)$/m.exec(metrics)?.[1]);
    };

    expect(await failures()).toBe(0);

    disk.raise("fail-checkpoint");
    expect(await store()).toMatchObject({ responses: { "200": PLANTS }, unanswered: 0 });

    await stderr.until(/"message":"Checkpoint failed".*"cause":.*database or disk is full/);
    // The test's own time limit ends it.
    while ((await failures()) === 0) await Bun.sleep(100);
    expect(await get(url, "/readyz")).toBe("200");

    disk.clear("fail-checkpoint");
    expect(await store()).toMatchObject({ responses: { "200": PLANTS }, unanswered: 0 });
    expect(Bun.file(disk.database).size).toBeGreaterThan(PLANTS * NAME.length);
    expect(await stop(server)).toBe(0);

    server.requireIntact();
  },
);

/**
 * The largest WAL that is allowed, in bytes: twice what the README says, because other tests load
 * the machine. Measured: 84 to 167 MB, and 570 MB without the RESTART checkpoint.
 */
const WAL_BOUND = 256 * 2 ** 20;

/** Each line changes a page, of 4 KB: without the bound the WAL would hold all of them. */
const LINES = 60_000;

test("an import beside a busy server keeps the WAL within its bound, and both store every plant", async () => {
  await using server = await startOnDisk();
  const { disk } = server;
  writeFileSync(
    join(disk.path, "plants.ndjson"),
    Array.from({ length: LINES }, randomLine).join("\n"),
  );

  const ended = new AbortController();
  const importing = runToEnd({ cwd: disk.path, args: ["import", "plants.ndjson"] }).finally(() =>
    ended.abort(),
  );
  const sizes: number[] = [];
  const statuses = new Set<number>();

  const client = async () => {
    while (!ended.signal.aborted) {
      statuses.add((await post(server.url, randomLine())).status);
      sizes.push(statSync(`${disk.database}-wal`).size);
    }
  };

  await Promise.all(Array.from({ length: 8 }, client));
  expect(await importing).toMatchObject({
    exitCode: 0,
    stderr: expect.stringContaining(LINES.toLocaleString("en-US")),
  });
  expect([...statuses]).toEqual([200]);
  expect(Math.max(...sizes)).toBeLessThan(WAL_BOUND);
});

/** A plant that fills most of a page, under an id anywhere among the others. */
function randomLine(): string {
  const id = Math.trunc((Math.random() - 0.5) * Number.MAX_SAFE_INTEGER);
  return jsonOf(fern({ id, [TEXT]: "Monstera ".repeat(330) }));
}
