import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { chownSync, copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
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

const [recipe = ""] = blocks("Container", "dockerfile");

/** Distroless' `nonroot`. */
const USER = 65_532;

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
    expect(refused.stderr).toContain("plant-store migrate --database /data/plants.db\n");

    // As `docker run --rm … token create` does.
    const token = await createToken(await containerOn(volume));

    {
      const program = await containerOn(volume);
      await using server = await startServer({ program });
      const pid = lastDescendantOf(server.child.pid);
      expect(readFileSync(`/proc/${pid}/cmdline`, "utf8")).toBe(
        ["/plant-store", "--port", "0", ""].join("\0"),
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
  "the guide's containers make a backup beside the server, and restore it once that is stopped",
  async () => {
    const volume = await makeVolume("saved");
    const backups = home.at("backups");
    mkdirSync(backups);
    chownSync(backups, USER, USER);

    const lines = blocks("Backup and restore", "sh").join("\n");
    const run = /^docker run --rm -v plants:\/data -v \S+:\/backups plant-store (.*)$/gm;
    const [backup, restore] = Array.from(lines.matchAll(run), ([, line = ""]) => {
      const args = line.replace(/"(.*)\$\(.*\)(.*)"|2026[-T\d]+/, "$1copy$2").split(" ");
      return async () => {
        const { exitCode } = await runToEnd({ program: await containerOn(volume, backups), args });
        return exitCode;
      };
    });

    const token = await createToken(await containerOn(volume));
    {
      await using server = await startServer({ program: await containerOn(volume) });
      expect((await post(server.url, undefined, { token })).status).toBe(200);
      expect(await backup?.()).toBe(0);
      expect((await post(server.url, ivy({ id: 2n }), { token })).status).toBe(200);
      expect(await restore?.()).toBe(1);
    }

    expect(await restore?.()).toBe(0);
    const exported = await runPrinting(await containerOn(volume), () => ["export"]);
    expect(exported.stdout).toBe(`${jsonOf(fern())}\n`);
  },
);

test.skipIf(skips)(
  "a container on a volume of another user says in one line what is wrong",
  async () => {
    const volume = home.at("root");
    mkdirSync(volume, { mode: 0o755 });
    const { exitCode, stderr } = await runPrinting(await containerOn(volume), () => ["migrate"]);
    expect({ exitCode, line: stderr.split("\n")[0] }).toEqual({
      exitCode: 1,
      line:
        'Cannot open database "/data/plants.db": its directory belongs to uid 0, and this runs as uid 65532; ' +
        "if it is yours, give it to that user: chown -h 65532 /data",
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
  await Bun.$`cp --archive ${image}/data ${home.at(name)}`;
  return home.at(name);
}

/** The command line that runs the image's entrypoint in a new container. */
async function containerOn(volume: string, backups?: string): Promise<string[]> {
  const container = await newContainer();
  const { OCIv1 } = await Bun.$`${BUILDAH} inspect ${container}`.json();
  // Otherwise buildah mounts a volume of its own over ours.
  await Bun.$`${BUILDAH} config --volume /data- ${container}`.quiet();
  const mounts = [`${volume}:/data`, ...(backups === undefined ? [] : [`${backups}:/backups`])];
  const volumes = mounts.flatMap((mount) => ["--volume", mount]);
  const run = ["run", "--isolation", "chroot", ...volumes, container, "--"];
  return [...TOGETHER, ...BUILDAH, ...run, ...OCIv1.config.Entrypoint];
}

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
