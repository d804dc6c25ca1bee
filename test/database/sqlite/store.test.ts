import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { SqliteStore } from "../../../src/database/sqlite/sqlite_store.ts";
import { fill, skipsTmpfs, smallDisk } from "../../support/disks.ts";
import { runApart } from "../../support/other_process.ts";
import { fern, moss, TEXT } from "../../support/plants.ts";
import { emptyDirectory, ROOT, runToEnd, TEST_TIMEOUT_MS } from "../../support/program.ts";
import { makeDisk, skipsShim } from "../../support/shim.ts";
import { DRIVERS } from "../../support/sqlite_drivers.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const FERN = fern();
const MOSS = moss({ id: 2n });
const SOME = Array.from({ length: 400 }, (_, id) => fern({ id, [TEXT]: "x".repeat(200) }));

const PAGE_BYTES = 4_096;

const skipsDisk = skipsTmpfs();

/** Adds a batch. Resolves to the outcomes, or to the code and the message of the refusal. */
function add(store: SqliteStore, ...plants: Parameters<SqliteStore["add"]>[0]) {
  return store
    .add(plants, { timeoutMs: TEST_TIMEOUT_MS })
    .catch(({ code, message }: Error & { code: string }) => `${code}: ${message}`);
}

const unavailable = (reason: string) =>
  `storage_unavailable: ${reason}; send the plant again later`;

/** Whether a store has failed for good by now. */
const hasFailed = (store: SqliteStore) =>
  Promise.race([store.failed.then(() => true), new Promise((end) => setImmediate(end, false))]);

/** Writes to a file as another process does. */
function overwrite(path: string, page: number, text: string): void {
  Bun.spawnSync(["dd", `of=${path}`, `bs=${PAGE_BYTES}`, `seek=${page}`, "conv=notrunc"], {
    stdin: Buffer.from(text.repeat(PAGE_BYTES / text.length)),
  });
}

describe.each(Object.entries(DRIVERS))("the store on %s", (driver, open) => {
  /** A database with some plants and no WAL. */
  async function stored() {
    const directory = emptyDirectory();
    const path = directory.at("plants.db");
    const store = await open(path);
    await add(store, ...SOME);
    store.close();
    return { ...directory, path };
  }

  test("a probe fails, as plants do, once a newer build has renamed a field in the file", async () => {
    using directory = emptyDirectory();
    const path = directory.at("plants.db");
    const store = await open(path);
    await store.probe();
    runApart(`connect(path).exec('ALTER TABLE plants RENAME COLUMN ${TEXT} TO other')`, path);

    expect(await add(store, FERN)).toContain(`no column named ${TEXT}`);
    expect(await store.probe().catch(({ message }: Error) => message)).toContain(
      `no such column: plants.${TEXT}`,
    );
    expect(await hasFailed(store)).toBe(false);
    store.close();
  });

  test("a conflict in a unique index of the operator's own is an error, and no plant under the id", async () => {
    using directory = emptyDirectory();
    const path = directory.at("plants.db");
    (await open(path)).close();
    runApart(`connect(path).exec('CREATE UNIQUE INDEX own ON plants ("${TEXT}")')`, path);

    const store = await open(path);
    expect(await add(store, FERN)).toEqual(["added"]);
    const twin = { ...FERN, id: 3n };
    await expect(store.add([MOSS, twin], { timeoutMs: 5_000 })).rejects.toMatchObject({
      code: "internal",
      cause: { message: `UNIQUE constraint failed: plants.${TEXT}` },
    });
    // Nothing of that batch is stored, and the store goes on.
    expect(await add(store, FERN, MOSS)).toEqual(["present", "added"]);
    store.close();
  });

  test.each([
    ["a corrupt page", "?", 1],
    ["text in the place of its pages", "This is no database. ____", 30],
  ])(
    "ends when it meets %s: it marks the file, and nothing writes to it",
    async (_, text, count) => {
      using file = await stored();
      const store = await open(file.path);
      expect(await add(store, FERN)).toEqual(["conflict"]);

      const last = statSync(file.path).size / PAGE_BYTES - 5;
      for (let page = last - count + 1; page <= last; page++) overwrite(file.path, page, text);
      // Not by this process, which would drop its own locks.
      Bun.spawnSync(["cp", file.path, file.at("before")]);
      const other = await open(file.path).catch(({ message }: Error) => message);

      // What the process has read before stays in memory: another store reads the disk.
      const reading = typeof other === "string" ? store : other;
      expect(await add(reading, ...SOME)).toBe(unavailable("storage is corrupt"));
      expect(await hasFailed(reading)).toBe(true);
      expect(existsSync(`${file.path}-corrupt`)).toBe(true);

      for (const one of [store, reading]) {
        // The first one may find the marker only now.
        const closing = await Promise.try(() => one.close()).catch(({ message }: Error) => message);
        expect(closing ?? "storage is corrupt").toContain("storage is corrupt");
      }
      expect(readFileSync(file.path).equals(readFileSync(file.at("before")))).toBe(true);
      await expect(open(file.path)).rejects.toThrow(": it is corrupt (");
    },
  );

  test.skipIf(skipsShim())(
    "ends after a failed fsync: it marks that, leaves the WAL, and the next one resets it",
    async () => {
      using disk = makeDisk({ shim: true });
      const program = [process.execPath, join(ROOT, "test/support/sqlite_drivers.ts")];
      const options = disk.server({ faults: { failSync: 15 }, program });
      const args = [driver, disk.database];

      const run = await runToEnd({ ...options, args });
      expect({ ...run, stdout: Number(run.stdout) }).toMatchObject({ exitCode: 0, stderr: "" });
      expect(Number(run.stdout)).toBeGreaterThan(0);
      expect(Number(run.stdout)).toBeLessThan(100);
      expect(existsSync(`${disk.database}-unsynced`)).toBe(true);
      expect(statSync(`${disk.database}-wal`).size).toBeGreaterThan(0);

      const next = await runToEnd({ ...disk.server({ program }), args });
      expect(next).toEqual({ exitCode: 0, stdout: "100\n", stderr: "" });
      expect(existsSync(`${disk.database}-unsynced`)).toBe(false);
    },
  );

  test.skipIf(skipsShim())(
    "leaves the WAL after a failed fsync even if the process has no file descriptor left",
    async () => {
      using disk = makeDisk({ shim: true });
      const program = [process.execPath, join(ROOT, "test/support/sqlite_drivers.ts")];
      const options = disk.server({ faults: { failSync: 15 }, program });

      const run = await runToEnd({ ...options, args: [driver, disk.database, "no descriptors"] });
      expect({ ...run, stdout: Number(run.stdout) }).toMatchObject({ exitCode: 0, stderr: "" });
      expect(Number(run.stdout)).toBeGreaterThan(0);
      expect(Number(run.stdout)).toBeLessThan(100);
      expect(statSync(`${disk.database}-wal`).size).toBeGreaterThan(0);
    },
  );

  test.skipIf(process.platform !== "linux")(
    "says that it cannot open, and leaves nothing open, if the process has too few file descriptors",
    async () => {
      using directory = emptyDirectory();
      const script = `
        import { closeSync, openSync, readdirSync, readlinkSync } from "node:fs";
        import { fern } from ${JSON.stringify(join(ROOT, "test/support/plants.ts"))};
        import { DRIVERS } from ${JSON.stringify(join(ROOT, "test/support/sqlite_drivers.ts"))};
        const [driver, path] = process.argv.slice(1);
        const open = DRIVERS[driver];
        const links = () => readdirSync("/proc/self/fd").map((fd) => {
          try { return readlinkSync("/proc/self/fd/" + fd); } catch { return ""; }
        });
        (await open(path)).close();
        for (let free = 0; ; free++) {
          const others = [];
          try { for (;;) others.push(openSync("/dev/null")); } catch {}
          for (const other of others.splice(0, free)) closeSync(other);
          const opened = await open(path).catch(({ message }) => message);
          for (const other of others) closeSync(other);
          opened.close?.();
          const left = links().filter((link) => link.startsWith(path)).length;
          console.log(left, opened.close ? "opened" : opened.slice(0, opened.indexOf(":")));
          if (opened.close) break;
        }`;

      const limited = ["sh", "-c", 'ulimit -n 100 && exec "$@"', "sh", process.execPath, "-e"];
      const args = [script, driver, directory.at("plants.db")];
      const run = await runToEnd({ program: limited, args });
      expect(run).toMatchObject({ exitCode: 0, stderr: "" });
      const lines = run.stdout.trim().split("\n");
      expect(lines.pop()).toBe("0 opened");
      expect(new Set(lines)).toEqual(new Set([`0 Cannot open database "${args[2]}"`]));
      expect(lines.length).toBeGreaterThan(3);
    },
  );

  test.skipIf(skipsDisk)(
    "starts on a full disk, refuses plants, and stores them once there is room",
    async () => {
      using directory = emptyDirectory();
      using _ = smallDisk(directory.path, "size=1m");
      const path = directory.at("plants.db");
      const script = `
        import { fern } from ${JSON.stringify(join(ROOT, "test/support/plants.ts"))};
        import { DRIVERS } from ${JSON.stringify(join(ROOT, "test/support/sqlite_drivers.ts"))};
        const store = await DRIVERS["bun:sqlite"](process.argv[1]);
        await store.add([fern()], { timeoutMs: 1_000 });
        process.kill(process.pid, "SIGKILL");`;
      Bun.spawnSync([process.execPath, "-e", script, path]);
      fill(directory.at("filler"));

      const store = await open(path);
      const large = Array.from({ length: 100 }, (_, id) =>
        fern({ id: id + 9, [TEXT]: "x".repeat(4_000) }),
      );
      expect(await add(store, ...large)).toBe(unavailable("storage is full"));
      expect(await hasFailed(store)).toBe(false);

      rmSync(directory.at("filler"));
      expect(await add(store, FERN, MOSS)).toEqual(["present", "added"]);
      store.close();
    },
  );

  test("obeys a marker that another process writes", async () => {
    using file = await stored();
    const store = await open(file.path);
    expect(await add(store, FERN)).toEqual(["conflict"]);

    writeFileSync(`${file.path}-corrupt`, JSON.stringify({ version: 1, finding: "a gap" }));
    expect(await add(store, FERN)).toBe(unavailable("storage is corrupt"));
    expect(await hasFailed(store)).toBe(true);
    store.close();
    await expect(open(file.path)).rejects.toThrow("it is corrupt (a gap)");
  });

  test("refuses plants while its file is away, and ends when another one is at the path", async () => {
    using file = await stored();
    const store = await open(file.path);
    renameSync(file.path, `${file.path}-away`);
    expect(await add(store, FERN)).toBe(unavailable("storage is gone"));
    expect(await hasFailed(store)).toBe(false);

    renameSync(`${file.path}-away`, file.path);
    expect(await add(store, FERN)).toEqual(["conflict"]);

    writeFileSync(`${file.path}-new`, readFileSync("/dev/null"));
    renameSync(`${file.path}-new`, file.path);
    expect(await add(store, FERN)).toBe(unavailable("storage is gone"));
    expect(await hasFailed(store)).toBe(true);
    store.close();
  });
});
