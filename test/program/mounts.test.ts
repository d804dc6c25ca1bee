import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

import { post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { blocks } from "../support/guides.ts";
import { skipped } from "../support/missing.ts";
import { fern, ivy, jsonOf } from "../support/plants.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { shell } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** The program among mounts of its own, which a script makes first. They are gone when it ends. */
function mounting(script: string): string[] {
  return ["unshare", "--mount", ...shell(`${script} && exec "$@"`)];
}

/**
 * Mounts `image` at `data`, as the lower layer of an overlay. The upper one is in memory: it may
 * not lie on an overlay.
 */
const OVERLAY = `
  mount -t tmpfs tmpfs layer && mkdir layer/upper layer/work &&
  mount -t overlay overlay -o lowerdir=image,upperdir=layer/upper,workdir=layer/work data`;

/** A directory for {@linkcode OVERLAY}. */
function overlayDirectory() {
  const here = emptyDirectory();
  for (const name of ["image", "layer", "data"]) mkdirSync(here.at(name));
  return here;
}

function skipsMounts(): boolean {
  using here = overlayDirectory();
  const canMount =
    Bun.which("unshare") !== null &&
    Bun.spawnSync(["unshare", "--mount", "sh", "-c", OVERLAY], { cwd: here.path }).success;
  return (
    !canMount && skipped("databases among mounts: mounting needs root, overlayfs, and util-linux")
  );
}

const skips = skipsMounts();

test.skipIf(skips)(
  "a database that an image brings in a lower layer is served at the first start",
  async () => {
    using here = overlayDirectory();
    expect(
      (await runToEnd({ cwd: here.at("image"), args: ["token", "create", "garden"] })).exitCode,
    ).toBe(0);

    await using server = await startServer({
      cwd: here.path,
      env: { AUTH_TOKENS: TOKEN },
      program: mounting(OVERLAY),
      args: ["--database", "data/plants.db"],
    });

    expect((await post(server.url)).status).toBe(200);
  },
);

/**
 * A volume with a new database, and two empty places for it: those of a container, and of the one
 * after it.
 */
async function volume() {
  const here = emptyDirectory();
  for (const name of ["volume", "first one", "second"]) mkdirSync(here.at(name));
  const made = await runToEnd({ cwd: here.at("volume"), args: ["token", "create", "garden"] });
  expect(made.exitCode).toBe(0);
  return here;
}

/** One for each place that looks: before writing, before reading, and before the move of a restore. */
const COMMANDS = ["serve --port 0", "export", "restore saved.db"];

test.skipIf(skips).each(COMMANDS)(
  "a database that is mounted without its directory is refused: %s",
  async (command) => {
    using here = await volume();
    const path = here.at("first one/plants.db");
    const copy = here.at("saved.db");

    writeFileSync(path, "");
    const saved = await runToEnd({ cwd: here.at("volume"), args: ["backup", copy] });
    expect(saved.exitCode).toBe(0);

    const program = mounting("mount --bind volume/plants.db 'first one/plants.db'");
    const args = [...command.split(" "), "--database", path];
    const { exitCode, stderr } = await runToEnd({ cwd: here.path, program, args });

    const says = `database "${path}": it is mounted without its directory, and its WAL would be lost: mount the directory\n`;
    expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: expect.stringContaining(says) });
    expect(readdirSync(here.at("first one"))).toEqual(["plants.db"]);
  },
);

test.skipIf(skips)(
  "a mounted directory keeps its plants when a container is killed and replaced",
  async () => {
    using here = await volume();
    const inContainer = (name: string) => ({
      cwd: here.path,
      env: { AUTH_TOKENS: TOKEN },
      program: mounting(`mount --bind volume '${name}'`),
    });

    {
      await using server = await startServer({
        ...inContainer("first one"),
        args: ["--database", "first one/plants.db"],
      });
      const posts = Array.from({ length: 100 }, (_, id) => post(server.url, fern({ id })));
      const statuses = (await Promise.all(posts)).map(({ status }) => status);
      expect(statuses).toEqual(Array(100).fill(200));
      server.child.kill("SIGKILL");
      await server.child.exited;
    }

    const args = ["export", "--database", "second/plants.db"];
    const { stdout } = await runToEnd({ ...inContainer("second"), args });
    expect(stdout.trim().split("\n")).toHaveLength(100);
  },
);

test.skipIf(skips)(
  "the guide's lines add the plants below a mount point to those on the disk, and name the ids that are taken",
  async () => {
    using home = emptyDirectory();
    for (const name of ["disk", "data"]) mkdirSync(home.at(name));
    const second = jsonOf(ivy({ id: 2n }));
    writeFileSync(home.at("disk.ndjson"), `${jsonOf(fern())}\n`);
    writeFileSync(home.at("below.ndjson"), `${jsonOf(ivy())}\n${second}\n`);
    writeFileSync(home.at("fstab"), `${home.at("disk")} ${home.at("data")} none bind`);

    const lines = blocks("A database below its mount point", "sh")
      .join("")
      .replaceAll("/var/lib/plant-store", home.at("data"))
      .replace("mount ", "mount -T fstab ")
      .replace("--tokens", "--tokens --database data/plants.db");
    const script = `systemctl() { echo "$*"; }
      plant-store import disk.ndjson --database disk/plants.db
      plant-store import below.ndjson --database data/plants.db
      ${lines}
      plant-store export --database data/plants.db
      plant-store export --database data-below/plants.db`;
    const { stdout, stderr } = await runToEnd({
      program: ["unshare", "--mount", "sh", "-c", script],
      cwd: home.path,
      env: { PATH: `${dirname(executable()[0])}:${process.env["PATH"]}` },
    });

    expect(stdout.split("\n")).toEqual([
      "stop plant-store",
      "start plant-store",
      jsonOf(fern()),
      second,
      jsonOf(ivy()),
      second,
      "",
    ]);
    expect(stderr).toContain("id 1: `id` is taken by a different plant; choose another id\n");
  },
);

test.skipIf(skips)("a list of users that cannot be read fails no command", async () => {
  using home = emptyDirectory();
  const created = await runToEnd({
    cwd: home.path,
    program: mounting("mount -t tmpfs tmpfs /etc && mkdir /etc/passwd"),
    args: ["token", "create", "garden"],
  });
  expect(created).toMatchObject({ exitCode: 0, stderr: expect.stringContaining('"garden"') });
});
