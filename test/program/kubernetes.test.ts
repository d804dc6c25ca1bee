import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, chownSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

import { post } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { skipped, skipsWithout } from "../support/missing.ts";
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
      const program = [VALIDATE, "--strict", "--quiet", ...version, SQLITE, POSTGRESQL];
      expect(await runToEnd({ program })).toMatchObject({ exitCode: 0, stdout: "", stderr: "" });
    }
  },
);

interface Container {
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value: string }[];
}

interface Pod {
  readonly securityContext: { readonly runAsUser: number; readonly fsGroup: number };
  readonly initContainers: readonly Container[];
  readonly containers: readonly Container[];
}

async function podOf(manifest: string): Promise<Pod> {
  const documents = Bun.YAML.parse(await Bun.file(manifest).text()) as {
    spec?: { template?: { spec: Pod } };
  }[];
  const pod = documents.flatMap(({ spec }) => spec?.template?.spec ?? [])[0];
  if (pod === undefined) throw new Error(`${manifest} has no pod`);
  return pod;
}

/**
 * Runs the containers of a pod in order: as its user, without a capability, on a system that is
 * read-only except for the volume. Stores a plant with a token that is made beside the server.
 *
 * @param mountPath Where the containers have the volume.
 */
async function runPod(manifest: string, mountPath: string, volume: string): Promise<void> {
  const pod = await podOf(manifest);
  const { runAsUser: user, fsGroup: group } = pod.securityContext;

  const asPod = [
    `mount --bind "${volume}" "${volume}"`,
    "mount -o remount,bind,ro /",
    `exec setpriv --reuid=${user} --regid=${group} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`,
  ].join(" && ");
  const inVolume = (text: string) => text.replace(mountPath, volume);
  const inPod = ({ command = executable(), args = [], env = [] }: Container) => ({
    program: ["unshare", "--mount", "sh", "-c", asPod, "sh", ...command.map(inVolume), ...args],
    env: {
      NODE_ENV: "production",
      ...Object.fromEntries(env.map(({ name, value }) => [name, inVolume(value)])),
    },
  });

  // A pod that is restarted runs them again.
  for (const container of [...pod.initContainers, ...pod.initContainers]) {
    expect(await runToEnd(inPod(container))).toMatchObject({ exitCode: 0 });
  }

  const [container = {}] = pod.containers;
  await using server = await startServer(inPod(container));
  const created = await runToEnd(inPod({ ...container, args: ["token", "create", "greenhouse"] }));
  const token = created.stdout.trim();
  while ((await post(server.url, undefined, { token })).status === 401) await Bun.sleep(50);
  expect((await post(server.url, undefined, { token })).status).toBe(200);
}

describe.skipIf(
  (process.getuid?.() !== 0 && skipped("the pods of Kubernetes: their user needs root")) ||
    ["unshare", "mount", "setpriv"].some((program) => skipsWithout(program, "util-linux")),
)("with no rights, and on a read-only system", () => {
  test("the pod on SQLite starts on a volume that all users may write to", async () => {
    using home = emptyDirectory();
    chmodSync(home.path, 0o755);
    const volume = home.at("data");
    mkdirSync(volume);
    chownSync(volume, 0, 65_532);
    chmodSync(volume, 0o2777);

    await runPod(SQLITE, "/data", volume);
  });

  describe.skipIf(skipsCluster())("on an empty PostgreSQL", () => {
    const cluster = withCluster();

    test("the pod on PostgreSQL starts with the URL of its Secret", async () => {
      await using database = await cluster().newDatabase();
      using home = emptyDirectory();
      chmodSync(home.path, 0o755);
      await Bun.write(home.at("database-url"), `${database.url}\n`);

      await runPod(POSTGRESQL, "/etc/plant-store", home.path);
    });
  });
});
