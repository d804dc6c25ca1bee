import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";

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
  "the guide's command backs up, upgrades and rolls back beside the guide's server, and restores",
  async () => {
    const volume = await makeVolume("saved");
    const backups = home.at("backups");
    mkdirSync(backups);
    chownSync(backups, USER, USER);
    const run = commandOn(volume, backups);

    const token = await createToken(await containerOn(volume));
    await run("docker run -d --name plants plant-store");
    const [backup = "", restore = ""] = blocks("Backup and restore", "sh");
    const [upgrade = "", check = "", rollback = ""] = blocks("Upgrade a container", "sh");
    let saved = "";

    {
      await using server = await startServer({ program: await containerOn(volume) });
      const store = async (id: bigint) => {
        expect((await post(server.url, fern({ id }), { token })).status).toBe(200);
      };

      await store(1n);
      expect(await run(backup)).toMatchObject({ exitCode: 0 });
      saved = readdirSync(backups).join();
      // As the script of the daily backup, which names files in its directory.
      expect(await run(`plant-store check --database ${saved}`)).toMatchObject({ exitCode: 0 });
      await store(2n);
      // The server is not stopped yet.
      const refused = await run(restore.replace("2026-11-23T000000.db", saved));
      expect(refused.stderr).toContain("has it open; stop it, and try again");

      writeFileSync(join(backups, "before-upgrade.db"), "of an earlier upgrade");
      const images = "readlink $IMAGES/plant-store:old $IMAGES/plant-store";
      const before = "plant-store check --database before-upgrade.db";
      expect(await run(upgrade)).toMatchObject({ exitCode: 0 });
      expect(await run(images)).toMatchObject({ stdout: "first\nnext\n" });
      await store(3n);
      // Again, before the new version starts, and while it runs, it would lose the way back.
      expect(await run(upgrade)).not.toMatchObject({ exitCode: 0 });
      await run("docker run -d --name plants plant-store");
      expect(await run(upgrade)).not.toMatchObject({ exitCode: 0 });
      expect(await run(images)).toMatchObject({ stdout: "first\nnext\n" });
      expect((await run(before)).stdout).toContain("2 plants");
    }

    expect(await run(check)).toMatchObject({ exitCode: 0 });
    await run("docker run -d --name plants plant-store");
    expect(await run(rollback.replace("import", "misspelled"))).not.toMatchObject({ exitCode: 0 });
    // Again, it would export what the restore has left.
    expect(await run(rollback)).not.toMatchObject({ exitCode: 0 });
    const rest = rollback.slice(rollback.indexOf("plant-store import"));
    expect(await run(rest)).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining("1 added, 2 already there, 0 refused\n"),
    });
    // Months later, there is another one.
    await run("docker run -d --name plants plant-store");
    expect(await run(rollback)).toMatchObject({ exitCode: 0 });

    expect(await run("plant-store plant delete 3 --yes")).toMatchObject({
      exitCode: 0,
      stdout: `${jsonOf(fern({ id: 3n }))}\n`,
    });
    expect(await run("plant-store export")).toMatchObject({
      stdout: [1n, 2n].map((id) => `${jsonOf(fern({ id }))}\n`).join(""),
    });

    const [stop = "", put = "", add = ""] = restore.split("\n");
    const restored = await run([stop, put.replace("2026-11-23T000000.db", saved)].join("\n"));
    const [, time = ""] = /db-replaced-([^"]+)"/.exec(restored.stderr) ?? [];
    // It names the same file.
    expect(restored.stderr).toContain(add.replace("TIME", time));
    expect(await run(add.replace("TIME", time))).toMatchObject({
      exitCode: 0,
      stderr: "1 added, 1 already there, 0 refused\n",
    });
  },
);

test.skipIf(skips)("a second move of a volume takes what is stored since the first", async () => {
  const volume = await makeVolume("moved");
  const backups = home.at("backups-moved");
  mkdirSync(backups);
  chownSync(backups, USER, USER);
  const run = commandOn(volume, backups);
  await run("plant-store migrate");

  const [leave = "", arrive = ""] = blocks("Move a volume", "sh");
  for (const id of [1n, 2n]) {
    await run("docker run -d --name plants plant-store");
    expect(await run(`echo '${jsonOf(fern({ id }))}' | plant-store import -`)).toMatchObject({
      exitCode: 0,
    });
    if (id === 2n) writeFileSync(join(backups, "move.db"), "of the first move");
    expect(await run(leave)).toMatchObject({ exitCode: 0 });
    // Again, while the server is gone, it changes nothing.
    expect(await run(leave)).not.toMatchObject({ exitCode: 0 });
    // Nothing is left to restore on a way back. The new machine has the same directory here.
    expect(readdirSync(backups)).toEqual(["move.db.sent"]);
    renameSync(join(backups, "move.db.sent"), join(backups, "move.db"));
    expect(await run(arrive.replace("plant-store:", `${USER}:${USER}`))).toMatchObject({
      exitCode: 0,
    });
  }
  expect((await run("plant-store export")).stdout).toBe(
    [1n, 2n].map((id) => `${jsonOf(fern({ id }))}\n`).join(""),
  );
});

test.skipIf(skips)(
  "a container on a volume of another user says in one line what is wrong",
  async () => {
    const volume = home.at("root");
    mkdirSync(volume, { mode: 0o755 });
    const { exitCode, stderr } = await runPrinting(await containerOn(volume), () => ["migrate"]);
    expect({ exitCode, line: stderr.split("\n")[0] }).toEqual({
      exitCode: 1,
      line:
        `Cannot open database "${DATA}/plants.db": its directory belongs to uid 0; ` +
        "choose another database with --database, or give that directory to uid 65532",
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

/**
 * A shell that has the guide's command, where a stand-in for Docker runs the executable as the
 * image's user on the mounts. buildah would lose some of what it prints.
 */
function commandOn(volume: string, backups: string) {
  const host = mkdtempSync(home.at("host-"));
  chmodSync(host, 0o755);
  const images = join(host, "images");
  mkdirSync(images);
  symlinkSync(executable()[0], `${images}/first`);
  symlinkSync(executable()[0], `${images}/next`);
  symlinkSync("first", `${images}/plant-store`);

  const programs = join(host, "programs");
  mkdirSync(programs);
  const [script = ""] = blocks("The command", "sh");
  writeFileSync(`${programs}/plant-store`, script, { mode: 0o755 });
  writeFileSync(`${programs}/docker`, DOCKER, { mode: 0o755 });
  // The other machine.
  writeFileSync(`${programs}/ssh`, "#!/bin/sh\nexec cat >/dev/null\n", { mode: 0o755 });
  writeFileSync(`${programs}/scp`, '#!/bin/sh\nexec cp "$1" "$1.sent"\n', { mode: 0o755 });

  const root = join(host, "root");
  mkdirSync(`${root}/dist`, { recursive: true });
  writeFileSync(`${root}/dist/plant-store`, "next");
  const inside = [
    "mount -t tmpfs none /var",
    "mkdir -p /var/backups/plant-store /var/volumes/plants",
    `mount --bind "${backups}" /var/backups/plant-store`,
    `mount --bind "${volume}" /var/volumes/plants`,
    'sh -c "$1"',
  ].join(" && ");

  return (lines: string) =>
    runToEnd({
      program: ["unshare", "--mount", "sh", "-c", inside, "sh", lines],
      cwd: root,
      env: { PATH: `${programs}:${process.env["PATH"] ?? ""}`, IMAGES: images },
    });
}

const DOCKER = `#!/bin/sh
set -e
case $1 in
  build) ln -sfn next "$IMAGES/$3" ;;
  tag) ln -sfn "$(readlink "$IMAGES/\${2%:latest}")" "$IMAGES/$3" ;;
  cp) cp "$IMAGES/\${2%%:*}.container" "$3" ;;
  stop) test -e "$IMAGES/$2.container" ;;
  rm) rm "$IMAGES/$2.container" ;;
  exec)
    export "$3"
    shift 5
    mkdir -p ${DATA}
    mount --bind /var/volumes/plants ${DATA}
    exec setpriv --reuid=${USER} --regid=${USER} --clear-groups "$IMAGES/plant-store" "$@" ;;
  run)
    shift
    if [ "$1" = -d ]; then
      readlink -n "$IMAGES/plant-store" >"$IMAGES/plants.container"
      exit
    fi
    while [ "\${1#-}" != "$1" ]; do
      case $1 in
        -v)
          from=\${2%%:*} to=\${2#*:}
          case $from in /*) ;; *) from=/var/volumes/$from ;; esac
          mkdir -p "$to"
          mount --bind "$from" "$to"
          shift 2 ;;
        -w) directory=$2; shift 2 ;;
        *) shift ;;
      esac
    done
    image=$1
    shift
    cd "$directory"
    export NODE_ENV=production DATABASE_URL=file:${DATA}/plants.db
    exec setpriv --reuid=${USER} --regid=${USER} --clear-groups "$IMAGES/$image" "$@" ;;
esac
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
