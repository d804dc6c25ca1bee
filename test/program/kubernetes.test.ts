import { describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

import { blocks } from "../support/guides.ts";
import { skipped } from "../support/missing.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { podOf, runnerOf, runPod, servePod, skipsPods } from "../support/pod.ts";
import { emptyDirectory, ROOT, runToEnd, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const MANIFESTS = Array.from(
  new Bun.Glob("src/server/kubernetes_*.yaml").scanSync({ cwd: ROOT, absolute: true }),
);
const SERVERS = MANIFESTS.filter((manifest) =>
  /^kind: Service$/m.test(readFileSync(manifest, "utf8")),
);
const SQLITE = join(ROOT, "src/server/kubernetes_sqlite.yaml");
const BACKUP = join(ROOT, "src/server/kubernetes_sqlite_backup.yaml");
const SHELL = join(ROOT, "src/server/kubernetes_sqlite_shell.yaml");
const INGRESS = join(ROOT, "src/server/kubernetes_ingress.yaml");

interface Service {
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
  readonly spec: { readonly ports: readonly { readonly name: string }[] };
}

interface Ingress {
  readonly spec: {
    readonly rules: readonly {
      readonly http: {
        readonly paths: readonly { readonly backend: { readonly service: unknown } }[];
      };
    }[];
  };
}

interface Monitor {
  readonly spec: {
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly endpoints: readonly { readonly port: string }[];
  };
}

interface KubernetesObject {
  readonly kind: string;
  readonly metadata: { readonly name: string };
}

async function objectsIn(manifest: string): Promise<KubernetesObject[]> {
  return [Bun.YAML.parse(await Bun.file(manifest).text())].flat() as KubernetesObject[];
}

/** The objects of a kind in a manifest. */
async function read<T>(manifest: string, kind: string): Promise<T[]> {
  const objects = await objectsIn(manifest);
  return objects.filter((object) => object.kind === kind) as unknown as T[];
}

/** Of PyPI: it has the schemas of Kubernetes inside. */
const VALIDATE = process.env["KUBERNETES_VALIDATE"] ?? "";

test.skipIf(
  !existsSync(VALIDATE) &&
    skipped("the schema of the manifests: KUBERNETES_VALIDATE names no program"),
)(
  "the manifests are valid for the Kubernetes that they name, and for the newest one, without unknown fields",
  async () => {
    expect(MANIFESTS).toEqual(expect.arrayContaining([SQLITE, BACKUP, SHELL, INGRESS]));
    for (const version of [["--kubernetes-version", "1.30"], []]) {
      const program = [VALIDATE, "--strict", "--quiet", ...version, ...MANIFESTS];
      expect(await runToEnd({ program })).toMatchObject({ exitCode: 0, stdout: "", stderr: "" });
    }
  },
);

test.each(SERVERS)(
  "the Ingress and the ServiceMonitor find the Service of a manifest: %s",
  async (manifest) => {
    const [service] = await read<Service>(manifest, "Service");
    const [ingress] = await read<Ingress>(INGRESS, "Ingress");
    const monitor = Bun.YAML.parse(blocks("Prometheus", "yaml")[0] ?? "") as Monitor;

    const port = service?.spec.ports[0]?.name;
    expect(ingress?.spec.rules[0]?.http.paths[0]?.backend.service).toEqual({
      name: service?.metadata.name,
      port: { name: port },
    });
    expect(monitor.spec.selector.matchLabels).toEqual(service?.metadata.labels ?? {});
    expect(monitor.spec.endpoints[0]?.port).toBe(port);
  },
);

test("a backup runs beside the pod that has the claim, and beside no other server", async () => {
  const { affinity } = (await podOf(BACKUP)) as unknown as { affinity: object };
  const [, labels = ""] =
    /"labelSelector":\{"matchLabels":(\{[^}]*\})/.exec(JSON.stringify(affinity)) ?? [];
  const [server] = await read<KubernetesObject>(SQLITE, "StatefulSet");
  // Kubernetes gives it to each pod of a StatefulSet.
  expect(JSON.parse(labels)).toEqual({
    "statefulset.kubernetes.io/pod-name": `${server?.metadata.name}-0`,
  });
});

describe.skipIf(skipsPods())("with no rights, and on a read-only system", () => {
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
    const volumes = { "/data": volume(home, "data"), "/backups": volume(home, "backups") };
    const backups = home.at("backups/db");
    mkdirSync(backups, { mode: 0o700 });
    chownSync(backups, 65_532, 65_532);

    const old = Array.from({ length: 14 }, (_, day) => `plants-2026-01-${10 + day}T000000Z.db`);
    for (const name of old) writeFileSync(join(backups, name), "");
    let saved = "";

    await servePod(SQLITE, volumes, async (store) => {
      const pod = await podOf(BACKUP);
      const printed = await runPod(pod, runnerOf(pod, volumes, "plant-store-backup"));
      expect(printed).toContain('"plants":1');
      const kept = readdirSync(backups).toSorted();
      expect(kept.slice(0, 13)).toEqual(old.slice(1));
      saved = kept.at(13) ?? "";
      expect(printed).toContain(saved);
      expect((await store(fern({ id: 2n }))).status).toBe(200);
    });

    const pod = await podOf(SHELL);
    const [{ command: _, ...shell } = {}] = pod.containers;
    const inPod = runnerOf(pod, volumes, "plant-store-shell");
    const [, lines = ""] = blocks("Restore in Kubernetes", "sh");
    const run = async (command: string, replaced = "") => {
      const line = new RegExp(
        `^kubectl exec plant-store-shell -- plant-store (${command} .*)$`,
        "m",
      );
      const [, args = ""] = line.exec(lines) ?? [];
      // Its own working directory and PATH are for kubectl.
      const named = args.replace("NAME.db", `/backups/db/${saved}`).replace("TIME", replaced);
      const env = (shell.env ?? []).filter(({ name }) => name !== "PATH");
      return runToEnd(inPod({ env, args: named.split(" ") }));
    };

    const restored = await run("restore");
    expect(restored).toMatchObject({ exitCode: 0 });
    const [, replaced] = /plants\.db-replaced-([^"]+)"/.exec(restored.stderr) ?? [];
    expect(await run("import", replaced)).toMatchObject({
      exitCode: 0,
      stderr: "1 added, 1 already there, 0 refused\n",
    });
    const exported = await runToEnd(
      inPod({ ...shell, env: shell.env?.slice(0, 1) ?? [], args: ["export"] }),
    );
    expect(exported.stdout).toBe(`${jsonOf(fern())}\n${jsonOf(fern({ id: 2n }))}\n`);
  });
});
