import { describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

import { blocks } from "../support/guides.ts";
import { skipped, skipsWithout } from "../support/missing.ts";
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

test("the guide's lines name objects of the manifests, or that a line before creates", async () => {
  const lines = blocks("Kubernetes", "sh").join("\n");
  const objects = (await Promise.all(MANIFESTS.map((path) => objectsIn(path)))).flat();
  const names = objects.map(({ kind, metadata }) => `${kind.toLowerCase()}/${metadata.name}`);
  const jobs = Array.from(lines.matchAll(/create job (\S+)/g), ([, name]) => `job/${name}`);
  const pod = "pod/plant-store-0"; // the first one of the StatefulSet
  const known = [...names, ...jobs, pod];
  const files = MANIFESTS.map((path) => path.slice(path.lastIndexOf("/") + 1));

  const named = lines.match(/\b(?:statefulset|cronjob|job|pod)\/[-\w]+/g) ?? [];
  expect(named).toEqual(expect.arrayContaining([pod, "job/before-upgrade"]));
  expect(known).toEqual(expect.arrayContaining(named));
  expect(known).toEqual(
    expect.arrayContaining(
      Array.from(
        lines.matchAll(/ exec (\S+)| cp .*?([-\w]+):/g),
        ([, exec, cp]) => `pod/${exec ?? cp}`,
      ),
    ),
  );
  expect(files).toEqual(
    expect.arrayContaining(
      Array.from(lines.matchAll(/(?<!rm )-f ([^-\s]\S*)/g), ([, file]) => file),
    ),
  );
});

test("a failure ends the lines of an upgrade, a rollback and a move", () => {
  const chains = [
    "Upgrade a container",
    "Move a volume",
    "Upgrade in Kubernetes",
    "Move a claim",
    "From SQLite to PostgreSQL in Kubernetes",
  ]
    .flatMap((heading) => blocks(heading, "sh"))
    .filter((block) => /restore|move\.db|before-upgrade|replicas=0/.test(block));
  expect(chains).toHaveLength(10);
  const unchained = chains.flatMap((block) => {
    const lines = block.trimEnd().split("\n");
    return lines.slice(0, -1).filter((line) => !line.endsWith(" &&") && !/^\w+=/.test(line));
  });
  expect(unchained).toEqual([]);
});

test.skipIf(skipsWithout("sed", "sed"))(
  "a backup before an upgrade is not pruned, and the line that sets an image sets all",
  async () => {
    const [create = "", set = ""] = blocks("Upgrade in Kubernetes", "sh");
    const [, pruned = ""] = /ls -t (\S+)-\*\.db/.exec(readFileSync(BACKUP, "utf8")) ?? [];
    const [, name = ""] = /create job (\S+)/.exec(create) ?? [];
    expect(pruned).not.toBe("");
    expect(name).not.toStartWith(pruned);

    using home = emptyDirectory();
    const manifests = [SQLITE, BACKUP, SHELL].map((path) => readFileSync(path, "utf8"));
    for (const [index, text] of manifests.entries())
      writeFileSync(home.at(`kubernetes_sqlite_${index}.yaml`), text);
    const program = ["sh", "-c", set.split("\n")[0] ?? ""];
    expect(await runToEnd({ program, cwd: home.path })).toMatchObject({ exitCode: 0 });

    const image = (version: string) => `image: registry.example.org/plant-store:${version}`;
    const changed = manifests.map((_, index) =>
      readFileSync(home.at(`kubernetes_sqlite_${index}.yaml`), "utf8"),
    );
    expect(changed).toEqual(
      manifests.map((text) => text.replaceAll(image("1.0.0"), image("1.1.0"))),
    );
    expect(changed.join("")).not.toContain("plant-store:1.0.0");
  },
);

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
    const backups = volume(home, "backups");
    const volumes = { "/data": volume(home, "data"), "/backups": backups };

    const old = Array.from({ length: 14 }, (_, day) => `plant-store-backup-1${10 + day}.db`);
    for (const [day, name] of old.entries()) {
      writeFileSync(join(backups, name), "");
      utimesSync(join(backups, name), day, day);
    }

    await servePod(SQLITE, volumes, async (store) => {
      const pod = await podOf(BACKUP);
      const printed = await runPod(pod, runnerOf(pod, volumes, "plant-store-backup-2"));
      expect(printed).toContain('"plants":1');
      expect(readdirSync(backups).toSorted()).toEqual([...old.slice(1), "plant-store-backup-2.db"]);
      expect(printed).toEndWith(" plant-store-backup-2.db\n");
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
      const named = args.replace("NAME", "/backups/plant-store-backup-2").replace("TIME", replaced);
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
