import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { isRoot, NOBODY, skipsCluster, startCluster } from "./postgres.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "./program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A test run that starts a cluster, says where, and goes on until it is killed. */
const TEST_RUN = `
import { startCluster } from ${JSON.stringify(join(import.meta.dir, "postgres.ts"))};
const cluster = await startCluster();
console.log(cluster.data);
await new Promise(() => setInterval(() => {}, 1000));`;

test.skipIf(!isRoot || skipsCluster())(
  "a cluster in a TMPDIR that its user cannot enter says so",
  () => {
    using directory = emptyDirectory();
    chmodSync(directory.path, 0o700);
    const { exitCode, stderr } = Bun.spawnSync([process.execPath, "-e", TEST_RUN], {
      env: { ...process.env, TMPDIR: directory.path },
      stderr: "pipe",
    });
    expect(exitCode).toBe(1);
    expect(stderr.toString()).toContain(`can user ${NOBODY} enter TMPDIR, ${directory.path}?`);
  },
);

describe.skipIf(skipsCluster())("a cluster leaves nothing behind", () => {
  test("at the end of its scope", async () => {
    const cluster = await startCluster();
    const held = holds(cluster.data);
    expect(held.left()).toEqual([dirname(cluster.data), "a segment", ...held.files]);
    await cluster[Symbol.asyncDispose]();
    expect(held.left()).toEqual([]);
  });

  test("after a kill, and after a restart", async () => {
    const cluster = await startCluster();
    const first = holds(cluster.data);
    await cluster.kill();
    expect(first.left()).not.toContain("a segment");

    await cluster.restart();
    const second = holds(cluster.data);
    await cluster[Symbol.asyncDispose]();
    expect([...first.left(), ...second.left()]).toEqual([]);
  });

  test("where every process of it is stopped", async () => {
    const cluster = await startCluster();
    const held = holds(cluster.data);
    cluster.signalAll("SIGSTOP");
    await cluster[Symbol.asyncDispose]();
    expect(held.left()).toEqual([]);
  });

  test("after a test run that is killed", async () => {
    await using run = Bun.spawn([process.execPath, "-e", TEST_RUN], {
      stdout: "pipe",
      stderr: "inherit",
    });
    const { value } = await run.stdout.getReader().read();
    const held = holds(new TextDecoder().decode(value).trim());

    run.kill("SIGKILL");
    const deadline = performance.now() + TEST_TIMEOUT_MS / 2;
    while (held.left().length > 0 && performance.now() < deadline) await Bun.sleep(10);
    expect(held.left()).toEqual([]);
  });
});

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
