import { describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

import type { NewPlant } from "../../src/plant/plant.ts";
import { post, untilTokenIs } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { skipped, skipsWithout } from "../support/missing.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import {
  emptyDirectory,
  ROOT,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const SQLITE = join(ROOT, "src/server/kubernetes_sqlite.yaml");
const BACKUP = join(ROOT, "src/server/kubernetes_sqlite_backup.yaml");
const RESTORE = join(ROOT, "src/server/kubernetes_sqlite_restore.yaml");
const POSTGRESQL = join(ROOT, "src/server/kubernetes_postgresql.yaml");

/** Of PyPI: it has the schemas of Kubernetes inside. */
const VALIDATE = process.env["KUBERNETES_VALIDATE"] ?? "";

test.skipIf(
  !existsSync(VALIDATE) &&
    skipped("the schema of the manifests: KUBERNETES_VALIDATE names no program"),
)(
  "the manifests are valid for the Kubernetes that they name, and for the newest one, without unknown fields",
  async () => {
    for (const version of [["--kubernetes-version", "1.30"], []]) {
      const manifests = [SQLITE, BACKUP, RESTORE, POSTGRESQL];
      const program = [VALIDATE, "--strict", "--quiet", ...version, ...manifests];
      expect(await runToEnd({ program })).toMatchObject({ exitCode: 0, stdout: "", stderr: "" });
    }
  },
);

interface Container {
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
}

interface Pod {
  readonly securityContext: { readonly runAsUser: number; readonly fsGroup: number };
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
}

interface Workload {
  readonly template?: { readonly spec: Pod };
  readonly jobTemplate?: { readonly spec: Workload };
}

async function podOf(manifest: string): Promise<Pod> {
  const read = Bun.YAML.parse(await Bun.file(manifest).text()) as
    { spec?: Workload } | { spec?: Workload }[];
  const pod = [read]
    .flat()
    .flatMap(({ spec }) => (spec?.jobTemplate?.spec ?? spec)?.template?.spec ?? [])[0];
  if (pod === undefined) throw new Error(`${manifest} has no pod`);
  return pod;
}

/**
 * How the containers of a pod run: as its user, without a capability, on a system that is read-only
 * except for the volumes.
 *
 * @param volumes Where the paths of the containers are here.
 * @param name The pod's, which the cluster fills in.
 */
function runnerOf(
  { securityContext: { runAsUser: user, fsGroup: group } }: Pod,
  volumes: Readonly<Record<string, string>>,
  name: string,
) {
  const asPod = [
    ...Object.values(volumes).map((volume) => `mount --bind "${volume}" "${volume}"`),
    "mount -o remount,bind,ro /",
    `exec setpriv --reuid=${user} --regid=${group} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`,
  ].join(" && ");
  const here = (text: string) =>
    Object.entries(volumes).reduce(
      (replaced, [mountPath, volume]) => replaced.replaceAll(mountPath, volume),
      text.replaceAll("$(POD)", name),
    );

  return ({ command = executable(), args = [], env = [] }: Container) => ({
    cwd: "/",
    program: ["unshare", "--mount", "sh", "-c", asPod, "sh", ...[...command, ...args].map(here)],
    env: {
      NODE_ENV: "production",
      ...Object.fromEntries(env.map((variable) => [variable.name, here(variable.value ?? name)])),
    },
  });
}

/** Runs the containers of a pod to their end, in order. Resolves to what they printed. */
async function runPod(
  { initContainers = [], containers }: Pod,
  inPod: ReturnType<typeof runnerOf>,
): Promise<string> {
  let printed = "";
  for (const container of [...initContainers, ...containers]) {
    const { exitCode, stdout, stderr } = await runToEnd(inPod(container));
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
    printed += stdout;
  }
  return printed;
}

/**
 * Starts a pod that serves, and stores a plant with a token that is made beside the server.
 *
 * @param meanwhile Called with a function that stores another plant.
 */
async function servePod(
  manifest: string,
  volumes: Readonly<Record<string, string>>,
  meanwhile?: (store: (plant: NewPlant) => Promise<Response>) => Promise<void>,
): Promise<void> {
  const pod = await podOf(manifest);
  const inPod = runnerOf(pod, volumes, "plant-store");

  // A pod that is restarted runs them again.
  for (let start = 0; start < 2; start++) await runPod({ ...pod, containers: [] }, inPod);

  const [container = {}] = pod.containers;
  await using server = await startServer(inPod(container));
  const created = await runToEnd(inPod({ ...container, args: ["token", "create", "greenhouse"] }));
  const token = created.stdout.trim();
  await untilTokenIs(200, server.url, token);
  await meanwhile?.((plant) => post(server.url, plant, { token }));
}

describe.skipIf(
  (process.getuid?.() !== 0 && skipped("the pods of Kubernetes: their user needs root")) ||
    ["unshare", "mount", "setpriv"].some((program) => skipsWithout(program, "util-linux")),
)("with no rights, and on a read-only system", () => {
  /** A volume that all users may write to, as some provisioners make them. */
  function volume(home: ReturnType<typeof emptyDirectory>, name: string): string {
    const path = home.at(name);
    mkdirSync(path);
    chownSync(path, 0, 65_532);
    chmodSync(path, 0o2777);
    return path;
  }

  test("the pod on SQLite starts on a volume that all users may write to, and a backup beside it can be restored", async () => {
    using home = emptyDirectory();
    chmodSync(home.path, 0o755);
    const backups = volume(home, "backups");
    const volumes = { "/data": volume(home, "data"), "/backups": backups };

    const old = join(backups, "plant-store-backup-1.db");
    writeFileSync(old, "");
    const ago = Date.now() / 1_000 - 15 * 86_400;
    utimesSync(old, ago, ago);

    await servePod(SQLITE, volumes, async (store) => {
      const pod = await podOf(BACKUP);
      const printed = await runPod(pod, runnerOf(pod, volumes, "plant-store-backup-2"));
      expect(printed).toContain('"plants":1');
      expect(readdirSync(backups)).toEqual(["plant-store-backup-2.db"]);
      expect(printed).toEndWith(" plant-store-backup-2.db\n");
      expect((await store(fern({ id: 2n }))).status).toBe(200);
    });

    const pod = await podOf(RESTORE);
    const [restore = {}] = pod.containers;
    const inPod = runnerOf(pod, volumes, "plant-store-restore");
    const args = (restore.args ?? []).map((arg) => arg.replace("NAME", "plant-store-backup-2"));
    await runPod({ ...pod, containers: [{ ...restore, args }] }, inPod);
    const exported = await runToEnd(inPod({ ...restore, args: ["export"] }));
    expect(exported.stdout).toBe(`${jsonOf(fern())}\n`);
  });

  describe.skipIf(skipsCluster())("on an empty PostgreSQL", () => {
    const cluster = withCluster();

    test("the pod on PostgreSQL starts with the URL of its Secret", async () => {
      await using database = await cluster().newDatabase();
      using home = emptyDirectory();
      chmodSync(home.path, 0o755);
      await Bun.write(home.at("database-url"), `${database.url}\n`);

      await servePod(POSTGRESQL, { "/etc/plant-store": home.path });
    });
  });
});
