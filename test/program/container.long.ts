import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";

import { post, untilTokenIs } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { blocks } from "../support/guides.ts";
import { missing, skipped } from "../support/missing.ts";
import { fern, ivy, jsonOf } from "../support/plants.ts";
import {
  emptyDirectory,
  exitCodeOf,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const [recipe = ""] = blocks("Start a container", "dockerfile");

/** Distroless' `nonroot`. */
const USER = 65_532;

/** Where the volume is, in the container. */
const DATA = "/var/lib/plant-store";

const skips = skipsContainers();
const home = emptyDirectory();

/**
 * Keeps images and containers in our own directory, as plain copies: overlays of overlays are
 * refused.
 */
const BUILDAH = [
  "buildah",
  "--storage-driver",
  "vfs",
  "--root",
  home.at("storage"),
  "--runroot",
  home.at("run"),
];

/** Ends all of a container's processes with its first: buildah would leave the others. */
const TOGETHER = ["unshare", "--pid", "--fork", "--kill-child"];

beforeAll(async () => {
  if (skips) return;
  await makeBusybox();
  await makeDistroless();
  await buildRecipe();
});
afterAll(() => home[Symbol.dispose]());

test.skipIf(skips)(
  "the guide's container runs as its user, and the next one on its volume has its plants",
  async () => {
    const volume = await makeVolume("plants");
    expect(ownerOf(volume)).toEqual({ uid: USER, gid: USER });

    const refused = await runPrinting(await containerOn(volume), () => []);
    expect(refused).toMatchObject({ exitCode: 1, stdout: "" });
    expect(refused.stderr).toContain(`plant-store migrate --database ${DATA}/plants.db\n`);

    // As `docker run --rm … token create` does.
    const token = await createToken(await containerOn(volume));

    {
      const program = await containerOn(volume);
      await using server = await startServer({ program });
      const pid = lastDescendantOf(server.child.pid);
      expect(readFileSync(`/proc/${pid}/cmdline`, "utf8")).toBe(
        ["/usr/local/bin/plant-store", "--port", "0", ""].join("\0"),
      );
      expect(ownerOf(`/proc/${pid}`)).toEqual({ uid: USER, gid: USER });

      expect((await post(server.url, undefined, { token })).status).toBe(200);

      // As `docker exec` does.
      await untilTokenIs(200, server.url, await createToken(program, "balcony"));

      // As `docker stop` does.
      process.kill(pid, "SIGTERM");
      expect(await exitCodeOf(server.child)).toBe(0);
    }

    await using server = await startServer({ program: await containerOn(volume) });
    expect((await post(server.url, undefined, { token })).status).toBe(200);
    expect((await post(server.url, ivy(), { token })).status).toBe(409);
  },
);

test.skipIf(skips)(
  "the guide's lines back up beside the guide's server, restore, and move the volume",
  async () => {
    const volume = await makeVolume("saved");
    const backups = makeBackups("backups");
    const run = shellOn(volume, backups);
    const token = await createToken(await containerOn(volume));
    const [backup = "", , restore = ""] = blocks("Backup and restore", "sh");
    const [stop = "", put = "", add = "", start = ""] = restore.trim().split("\n");
    let saved = "";

    {
      await using server = await startServer({ program: await containerOn(volume) });
      const statusOf = async (id: bigint) =>
        (await post(server.url, fern({ id }), { token })).status;
      expect(await statusOf(1n)).toBe(200);
      expect(await run(backup)).toMatchObject({ exitCode: 0 });
      saved = readdirSync(backups).join();
      expect(await statusOf(2n)).toBe(200);
      // The server is not stopped yet.
      const refused = await run(put.replace("plants-2026-11-23T000000Z.db", saved));
      expect(refused.stderr).toContain("has it open (lslocks names it): stop it, and try again");
    }

    const restored = await run([stop, put.replace(/plants-2026\S+/, saved)].join("\n"));
    expect(restored).toMatchObject({ exitCode: 0 });
    const [, time = ""] = /db-replaced-([^"/]+)"/.exec(restored.stderr) ?? [];
    expect(await run(add.replace("TIME", time))).toMatchObject({
      exitCode: 0,
      stderr: "Tokens: 0 made valid, 0 revoked, 0 refused\n1 added, 1 already there, 0 refused\n",
    });
    expect(await run(start)).toMatchObject({ exitCode: 0 });

    const [leave = "", arrive = ""] = blocks("Move a volume", "sh");
    expect(await run(leave)).toMatchObject({ exitCode: 0 });
    const elsewhere = shellOn(await makeVolume("moved"), makeBackups("backups-moved"), backups);
    expect(await elsewhere(arrive)).toMatchObject({ exitCode: 0 });
    expect((await elsewhere("docker exec plants plant-store export")).stdout).toBe(
      [1n, 2n].map((id) => `${jsonOf(fern({ id }))}\n`).join(""),
    );
    expect(await elsewhere("docker exec plants plant-store plant delete 2 --yes")).toMatchObject({
      exitCode: 0,
      stdout: `${jsonOf(fern({ id: 2n }))}\n`,
    });
  },
);

/**
 * Runs a command in a container, again if nothing comes of what it prints: buildah loses that of a
 * short one, about once in thirty times.
 *
 * @param argsOf Its arguments, at each attempt.
 */
async function runPrinting(
  program: readonly string[],
  argsOf: (attempt: number) => readonly string[],
): ReturnType<typeof runToEnd> {
  for (let attempt = 1; ; attempt++) {
    const ended = await runToEnd({ program, args: argsOf(attempt) });
    const { exitCode, stdout, stderr } = ended;
    // What buildah itself says of a failure.
    const isAllLost =
      exitCode === 0 ? stdout === "" : !/^(?!subprocess exited|Error: exit)./m.test(stderr);
    if (!isAllLost || attempt === 10) return ended;
  }
}

async function createToken(program: readonly string[], name = "greenhouse"): Promise<string> {
  const { exitCode, stdout } = await runPrinting(program, (attempt) => [
    "token",
    "create",
    `${name}-${attempt}`,
  ]);
  expect(exitCode).toBe(0);
  return stdout.trim();
}

function ownerOf(path: string) {
  const { uid, gid } = statSync(path);
  return { uid, gid };
}

function skipsContainers(): boolean {
  if (Bun.which("buildah") === null || Bun.which("busybox") === null) {
    return missing("the guide's container: apt-get install buildah busybox-static");
  }
  const isRoot = process.getuid?.() === 0;
  return !isRoot && skipped("the guide's container: buildah needs root here");
}

/**
 * The base images cannot be pulled here. They are made of what the recipe needs of them, under the
 * same names.
 */
async function makeBaseImage(
  name: string,
  files: string,
  ...config: readonly string[]
): Promise<void> {
  const container = (await Bun.$`${BUILDAH} from scratch`.text()).trim();
  await Bun.$`${BUILDAH} copy ${container} ${files} /`.quiet();
  await Bun.$`${BUILDAH} config ${config} ${container}`.quiet();
  await Bun.$`${BUILDAH} commit --rm ${container} ${name}`.quiet();
}

async function makeBusybox(): Promise<void> {
  const files = home.at("busybox");
  mkdirSync(`${files}/bin`, { recursive: true });
  for (const name of ["sh", "mkdir", "chown"])
    copyFileSync(Bun.which("busybox") ?? "", `${files}/bin/${name}`);
  await makeBaseImage("docker.io/library/busybox", files);
}

/** The libraries that the executable asks for are those of glibc. */
async function makeDistroless(): Promise<void> {
  const files = home.at("distroless");
  const libraries = (await Bun.$`ldd ${executable()}`.text()).match(/\/lib\S+/g) ?? [];
  for (const library of libraries) {
    mkdirSync(files + dirname(library), { recursive: true });
    copyFileSync(library, files + library);
  }
  await makeBaseImage("gcr.io/distroless/cc-debian12:nonroot", files, "--user", `${USER}:${USER}`);
}

async function buildRecipe(): Promise<void> {
  const context = home.at("context");
  mkdirSync(`${context}/dist`, { recursive: true });
  await Bun.write(`${context}/Dockerfile`, recipe);
  copyFileSync(executable()[0], `${context}/dist/plant-store`);
  await Bun.$`${BUILDAH} bud --pull-never --isolation chroot --tag plant-store ${context}`.quiet();
}

/** An empty volume becomes what the image has at its path, as Docker makes a named one. */
async function makeVolume(name: string): Promise<string> {
  const container = await newContainer();
  const image = (await Bun.$`${BUILDAH} mount ${container}`.text()).trim();
  await Bun.$`cp --archive ${image}${DATA} ${home.at(name)}`;
  return home.at(name);
}

/** The command line that runs the image's entrypoint in a new container. */
async function containerOn(volume: string): Promise<string[]> {
  const container = await newContainer();
  const { OCIv1 } = await Bun.$`${BUILDAH} inspect ${container}`.json();
  // Otherwise buildah mounts a volume of its own over ours.
  await Bun.$`${BUILDAH} config --volume ${DATA}- ${container}`.quiet();
  const mount = ["--volume", `${volume}:${DATA}`];
  const run = ["run", "--isolation", "chroot", ...mount, container, "--"];
  return [...TOGETHER, ...BUILDAH, ...run, ...OCIv1.config.Entrypoint];
}

/** A directory of the host for backups, as the guide makes it. */
function makeBackups(name: string): string {
  mkdirSync(home.at(name), { mode: 0o700 });
  chownSync(home.at(name), USER, USER);
  return home.at(name);
}

/**
 * A shell where a stand-in for Docker runs the executable as the image's user on the volume. buildah
 * would lose some of what it prints.
 *
 * @param received Where the other machine's copy of a backup is. @default none
 */
function shellOn(volume: string, backups: string, received = backups) {
  const host = mkdtempSync(home.at("host-"));
  chmodSync(host, 0o755);
  writeFileSync(`${host}/docker`, DOCKER, { mode: 0o755 });
  for (const name of ["ssh", "scp"])
    writeFileSync(`${host}/${name}`, "#!/bin/sh\n", { mode: 0o755 });

  const inside = [
    "mount -t tmpfs none /var",
    `mkdir -p ${DATA} ${BACKUPS}`,
    `mount --bind "${volume}" ${DATA}`,
    `mount --bind "${backups}" ${BACKUPS}`,
    'sh -ec "$1"',
  ].join(" && ");
  return (lines: string) =>
    runToEnd({
      program: ["unshare", "--mount", "sh", "-c", inside, "sh", here(lines)],
      env: { PATH: `${host}:${process.env["PATH"] ?? ""}`, EXECUTABLE: executable()[0] },
    });

  function here(lines: string): string {
    return lines
      .replaceAll(/(?<=\s)\/backups(?=[\s/])/g, BACKUPS)
      .replaceAll("/root/", `${received}/`);
  }
}

/** Where the backups are, on the host and here in a container. */
const BACKUPS = "/var/backups/plant-store";

/** All of its containers have the volume. */
const DOCKER = `#!/bin/sh
case $1 in
  exec) shift 3 ;;
  run) while [ "\${1#plant-store:}" = "$1" ]; do shift; done; shift ;;
  *) exit 0 ;;
esac
export NODE_ENV=production DATABASE_URL=file:${DATA}/plants.db
exec setpriv --reuid=${USER} --regid=${USER} --clear-groups "$EXECUTABLE" "$@"
`;

async function newContainer(): Promise<string> {
  return (await Bun.$`${BUILDAH} from --pull-never plant-store`.text()).trim();
}

/** The process at the end of a chain of parents: proc_tid_children(5). */
function lastDescendantOf(pid: number): number {
  const children = readdirSync(`/proc/${pid}/task`)
    .flatMap((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8").split(" "))
    .filter((child) => child !== "");
  return children.length === 0 ? pid : lastDescendantOf(Number(children[0]));
}
