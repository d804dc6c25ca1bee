import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { skipsCluster } from "./postgres.ts";
import { TEST_TIMEOUT_MS } from "./program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A test run that stops a cluster by a signal, says where it is, and goes on until it is killed. */
const TEST_RUN = `
import { startCluster } from ${JSON.stringify(join(import.meta.dir, "postgres.ts"))};
const cluster = await startCluster();
cluster.signalAll("SIGSTOP");
console.log(cluster.data);
await new Promise(() => setInterval(() => {}, 1000));`;

// A leak would be noticed by nothing but a machine that is full.
test.skipIf(skipsCluster())(
  "a test run that is killed leaves nothing of its cluster, even one that was stopped",
  async () => {
    await using run = Bun.spawn([process.execPath, "-e", TEST_RUN], {
      stdout: "pipe",
      stderr: "inherit",
    });
    const { value } = await run.stdout.getReader().read();
    const data = new TextDecoder().decode(value).trim();
    const held = holds(data);
    expect(held.left()).toEqual([dirname(data), "a segment", ...held.files]);

    run.kill("SIGKILL");
    const deadline = performance.now() + TEST_TIMEOUT_MS / 2;
    while (held.left().length > 0 && performance.now() < deadline) await Bun.sleep(10);

    expect(held.left()).toEqual([]);
  },
);

/** What a cluster that runs holds, and what is left of it later. */
function holds(data: string) {
  const [pid, , , , , , memory] = readFileSync(join(data, "postmaster.pid"), "utf8").split("\n");
  const segment = memory?.trim().split(/ +/)[1];
  const mapped = readFileSync(`/proc/${pid}/maps`, "utf8").matchAll(/\/dev\/shm\/\S+/g);
  const files = [...new Set(Array.from(mapped, ([path]) => path))];

  // The first two columns are the key and the id.
  const hasSegment = () =>
    new RegExp(`^ *-?\\d+ +${segment} `, "m").test(readFileSync("/proc/sysvipc/shm", "utf8"));

  return {
    files,
    left: () => [
      ...[dirname(data)].filter(existsSync),
      ...(hasSegment() ? ["a segment"] : []),
      ...files.filter(existsSync),
    ],
  };
}
