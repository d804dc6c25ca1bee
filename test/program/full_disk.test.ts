import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { post, TOKEN } from "../support/client.ts";
import { imageDisk } from "../support/disks.ts";
import { skipped } from "../support/missing.ts";
import { fern, jsonOf, TEXT } from "../support/plants.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/**
 * ext4 keeps blocks back that not even root gets. Its blocks have a page's size: in smaller ones,
 * SQLite allocates a part of each page of its index. Below 8 MiB it has no journal, which would keep
 * blocks that are freed for some seconds.
 */
const smallDisk = () => imageDisk("8000000", "mkfs.ext4 -q -b 4096 -N 32");

function skips(): boolean {
  try {
    smallDisk()[Symbol.dispose]();
    return false;
  } catch {
    return skipped("databases on a full disk: mounting needs root, and mkfs.ext4");
  }
}

const PLANT = fern({ id: 2n ** 63n - 1n });

/** Writes until there is no room. */
function fill(path: string): void {
  for (const bytes of [65_536, 1]) {
    try {
      for (;;) writeFileSync(path, Buffer.alloc(bytes), { flag: "a" });
    } catch (error) {
      expect(error).toMatchObject({ code: "ENOSPC" });
    }
  }
}

/** Creates files until there is no inode. */
function takeInodes(path: string): void {
  mkdirSync(path);
  try {
    for (let file = 0; ; file++) writeFileSync(`${path}/${file}`, "");
  } catch (error) {
    expect(error).toMatchObject({ code: "ENOSPC" });
  }
}

describe.skipIf(skips())("on a small disk", () => {
  let disk: ReturnType<typeof smallDisk>;
  /** In a directory whose name is another one in a URI. */
  let directory: string;
  let database: string;

  beforeEach(() => {
    disk = smallDisk();
    directory = join(disk.path, "100%25 plants");
    database = `${directory}/plants.db`;
    mkdirSync(directory, { mode: 0o700 });
  });
  afterEach(() => disk[Symbol.dispose]());

  const plantStore = (args: string) =>
    runToEnd({ args: [...args.split(" "), "--database", database] });
  const serve = () => startServer({ env: { AUTH_TOKENS: TOKEN }, args: ["--database", database] });

  /** Stores the plant, and ends the server. */
  async function store(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    await using server = await serve();
    expect((await post(server.url, jsonOf(PLANT))).status).toBe(200);
    server.child.kill(signal);
    await server.child.exited;
  }

  test.each<[what: string, spoil: () => void, says: string, mend: () => void]>([
    [
      "without a free block",
      () => fill(join(disk.path, "filler")),
      "its file system is full: free some space (df -h 'DIRECTORY')",
      () => rmSync(join(disk.path, "filler")),
    ],
    [
      "without a free inode",
      () => takeInodes(join(disk.path, "fillers")),
      "its file system is full: it has no free inode; remove some files (df -i 'DIRECTORY')",
      () => rmSync(join(disk.path, "fillers"), { recursive: true }),
    ],
    [
      "that is read-only",
      () => disk.sh("mount -o remount,ro disk"),
      "its file system is read-only, perhaps since the disk failed: see dmesg, and mount it for writing",
      () => disk.sh("mount -o remount,rw disk"),
    ],
  ])(
    "%s a start says so, and a copy on another disk has all plants",
    async (_what, spoil, says, mend) => {
      await store("SIGTERM");
      spoil();

      const refused = {
        exitCode: 1,
        stdout: "",
        stderr: `Cannot open database "${database}": ${says.replace("DIRECTORY", directory)}\n`,
      };
      for (const command of ["serve --port 0", "token list", "token create greenhouse", "import -"])
        expect([command, await plantStore(command)]).toEqual([command, refused]);

      // What it would create or migrate is refused, too.
      const other = database.replace("plants.db", "new.db");
      expect(await runToEnd({ args: ["serve", "--check", "--database", other] })).toEqual({
        ...refused,
        exitCode: 2,
        stderr: refused.stderr.replace("plants.db", "new.db"),
      });

      using elsewhere = emptyDirectory();
      copyFileSync(database, elsewhere.at("plants.db"));
      const copied = ["export", "--database", elsewhere.at("plants.db")];
      expect((await runToEnd({ args: copied })).stdout).toBe(`${jsonOf(PLANT)}\n`);

      mend();
      await using server = await serve();
      expect((await post(server.url, jsonOf(PLANT))).status).toBe(200);
      expect((await post(server.url, jsonOf(fern({ id: PLANT.id, [TEXT]: "Moss" })))).status).toBe(
        409,
      );
    },
  );

  test("that is full, a server keeps its WAL at a stop, starts again, and all plants can be carried away", async () => {
    const other = jsonOf(fern({ id: 1n }));
    {
      await using server = await serve();
      expect((await post(server.url, jsonOf(PLANT))).status).toBe(200);
      fill(join(disk.path, "filler"));
      expect((await post(server.url, other)).status).toBe(503);
      expect(await server.stop()).toBe(1);
    }
    expect(readdirSync(directory).toSorted()).toEqual([
      "plants.db",
      "plants.db-shm",
      "plants.db-wal",
    ]);

    using elsewhere = emptyDirectory();
    const line = `${jsonOf(PLANT)}\n`;
    expect(await plantStore("export")).toEqual({ exitCode: 0, stdout: line, stderr: "" });
    expect(await plantStore("check")).toMatchObject({ exitCode: 0, stderr: "" });
    expect(await plantStore(`backup ${elsewhere.at("copy.db")}`)).toMatchObject({ exitCode: 0 });

    await using server = await serve();
    expect((await post(server.url, other)).status).toBe(503);
    rmSync(join(disk.path, "filler"));
    while ((await post(server.url, other)).status === 503) await Bun.sleep(50);
    expect((await post(server.url, jsonOf(PLANT))).status).toBe(200);
  });

  test("that is full, no backup is made of a database elsewhere", async () => {
    using elsewhere = emptyDirectory();
    expect(
      await runToEnd({ cwd: elsewhere.path, args: ["token", "create", "garden"] }),
    ).toMatchObject({ exitCode: 0 });
    fill(join(disk.path, "filler"));

    const copy = `${directory}/copy.db`;
    expect(await runToEnd({ cwd: elsewhere.path, args: ["backup", copy] })).toEqual({
      exitCode: 1,
      stdout: "",
      stderr: expect.stringMatching(
        /^Cannot back up to "[^"]+copy\.db": no space left on device\n$/,
      ),
    });
    expect(readdirSync(directory)).toEqual([]);
  });
});
