import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { release } from "node:os";
import { join } from "node:path";

import { TOKEN } from "../support/client.ts";
import { imageDisk } from "../support/disks.ts";
import { INTACT, makeLedger } from "../support/ledger.ts";
import { newPlants } from "../support/load.ts";
import { skipped, skipsWithout } from "../support/missing.ts";
import { ROOT, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { DRIVERS } from "../support/sqlite_drivers.ts";
import { get, requireReady, requireUnavailable, stop } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

function skipsBtrfs(): boolean {
  if (skipsWithout("mkfs.btrfs", "btrfs-progs")) return true;
  const [major = 0, minor = 0] = release().split(".").map(Number);
  if (process.platform === "linux" && major * 100 + minor < 617)
    return skipped("a full btrfs: Linux before 6.17 writes no mapped page there");

  try {
    btrfs()[Symbol.dispose]();
    return false;
  } catch {
    return skipped("a full btrfs: none can be mounted here");
  }
}

const btrfs = () => imageDisk("128M", "mkfs.btrfs -q");

/** Takes all room, and writes every page to the disk: the next change of one needs another place. */
const FILL =
  "for size in 1M 4k 512; do dd if=/dev/zero bs=$size of=disk/filler-$size || sync; done 2>&-; sync";
const FREE = "rm disk/filler-*; sync";

// A full disk that copies on write has no room for a changed page of SQLite's index. That is mapped,
// so the kernel would answer with a signal.
describe.skipIf(skipsBtrfs())("on a full btrfs", () => {
  test.each(Object.keys(DRIVERS))(
    "a store by %s refuses plants, and stores them once there is room",
    (driver) => {
      using disk = btrfs();
      const script = `
        import { DRIVERS } from ${JSON.stringify(join(ROOT, "test/support/sqlite_drivers.ts"))};
        import { fern, TEXT } from ${JSON.stringify(join(ROOT, "test/support/plants.ts"))};
        const store = await DRIVERS["${driver}"]("plants.db");
        const large = fern({ [TEXT]: "x".repeat(50_000) });
        const add = (id) => store.add([{ ...large, id }], { timeoutMs: 1_000 }).then(String, ({ message }) => message);
        const sh = (script) => Bun.spawnSync(["sh", "-c", script], { cwd: ".." });
        console.log(await add(1n));
        sh(${JSON.stringify(FILL)});
        for (let id = 2n; id < 10n; id++) console.log(await add(id));
        sh(${JSON.stringify(FREE)});
        console.log(await add(1n));
        store.close();`;
      const run = Bun.spawnSync([process.execPath, "-e", script], { cwd: disk.path });

      expect({ signal: run.signalCode, stderr: run.stderr.toString() }).toEqual({
        signal: undefined,
        stderr: "",
      });
      const full = "storage is full; send the plant again later\n".repeat(8);
      expect(run.stdout.toString()).toBe(`added\n${full}present\n`);
    },
  );

  test("a server refuses plants, and stores them once there is room", async () => {
    using disk = btrfs();
    await using server = await startServer({ cwd: disk.path, env: { AUTH_TOKENS: TOKEN } });
    const ledger = makeLedger();
    const next = newPlants("full disk");
    await requireReady(server.url, ledger, next);

    disk.sh(FILL);
    while ((await get(server.url, "/readyz")) === "200") await Bun.sleep(50);
    for (let times = 0; times < 8; times++)
      expect(await requireUnavailable(server.url, ledger, next())).toContain("storage is full");

    disk.sh(FREE);
    await requireReady(server.url, ledger, next);
    expect(await stop(server)).toBe(0);
    expect(ledger.judge(join(disk.path, "plants.db"))).toEqual(INTACT);
  });
});
