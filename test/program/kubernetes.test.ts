import { describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

import { post, untilTokenIs } from "../support/client.ts";
import { blocks } from "../support/guides.ts";
import { skipped } from "../support/missing.ts";
import { fern, ivy, jsonOf } from "../support/plants.ts";
import { containerIn, execLines, podOf, skipsPods } from "../support/pod.ts";
import {
  emptyDirectory,
  ROOT,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";

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
const POSTGRESQL = join(ROOT, "src/server/kubernetes_postgresql.yaml");
const INGRESS = join(ROOT, "src/server/kubernetes_ingress.yaml");

interface Service {
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
  readonly spec: {
    readonly ports: readonly { readonly name: string }[];
    readonly selector: object;
  };
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

interface Deployment {
  readonly spec: {
    readonly template: {
      readonly metadata: { readonly labels: object };
      readonly spec: { readonly topologySpreadConstraints: readonly object[] };
    };
  };
}

interface Budget {
  readonly spec: { readonly minAvailable: number; readonly selector: object };
}

interface Policy {
  readonly spec: { readonly ingress: readonly { readonly from: readonly object[] }[] };
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
    expect(MANIFESTS).toEqual(expect.arrayContaining([SQLITE, BACKUP, SHELL, POSTGRESQL, INGRESS]));
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

test("two servers are on two nodes, and one goes on while a node is drained", async () => {
  const [deployment] = await read<Deployment>(POSTGRESQL, "Deployment");
  const [budget] = await read<Budget>(POSTGRESQL, "PodDisruptionBudget");
  const { labels } = deployment?.spec.template.metadata ?? {};
  expect(deployment?.spec.template.spec.topologySpreadConstraints).toEqual([
    expect.objectContaining({
      maxSkew: 1,
      topologyKey: "kubernetes.io/hostname",
      labelSelector: { matchLabels: labels },
    }),
  ]);
  expect(budget?.spec).toMatchObject({ minAvailable: 1, selector: { matchLabels: labels } });
});

test.each(SERVERS)("nothing runs before the server in its pod: %s", async (manifest) => {
  expect(await podOf(manifest)).not.toHaveProperty("initContainers");
});

test.each(SERVERS)("a NetworkPolicy lets in and out what it names only: %s", async (manifest) => {
  const [policy] = await read<Policy>(manifest, "NetworkPolicy");
  const [service] = await read<Service>(manifest, "Service");
  expect(policy?.spec).toMatchObject({
    podSelector: { matchLabels: service?.spec.selector },
    policyTypes: ["Ingress", "Egress"],
  });
  for (const { from } of policy?.spec.ingress ?? []) expect(from.length).toBeGreaterThan(0);
});

describe.skipIf(skipsPods())("with no rights, and on a read-only system", () => {
  test("a pod on SQLite starts after its first token only, is backed up, and takes no new claim for a first start", async () => {
    using home = emptyDirectory();
    chmodSync(home.path, 0o755);
    // Volumes that all users may write to, as some provisioners make them.
    const volumes = { "/data": home.at("data"), "/backups": home.at("backups") };
    for (const path of Object.values(volumes)) {
      mkdirSync(path);
      chownSync(path, 0, 65_532);
      chmodSync(path, 0o2777);
    }
    const backups = home.at("backups/db");
    mkdirSync(backups, { mode: 0o700 });
    chownSync(backups, 65_532, 65_532);

    const old = Array.from({ length: 14 }, (_, day) => `plants-2026-01-${10 + day}T000000Z.db`);
    for (const file of old) writeFileSync(join(backups, file), "");

    const server = await containerIn(SQLITE, volumes);
    const refused = { exitCode: 1, stderr: expect.stringContaining("there is no such directory") };
    expect(await runToEnd(server.start)).toMatchObject(refused);

    const shell = await containerIn(SHELL, volumes);
    const [create = []] = execLines("Start in Kubernetes");
    const created = await shell.exec(create);
    expect(created).toMatchObject({ exitCode: 0 });
    const token = created.stdout.trim();

    {
      await using serving = await startServer(server.start);
      await untilTokenIs(200, serving.url, token);
      const { start } = await containerIn(BACKUP, volumes);
      const backup = await runToEnd(start);
      expect(JSON.parse(backup.stdout)).toMatchObject({ plants: 1, deleted: [old[0]] });
      await untilTokenIs(200, serving.url, token, jsonOf(fern({ id: 2n })));
    }

    const name = readdirSync(backups).toSorted().at(-1) ?? "";
    const [restore = [], add = []] = execLines("Restore in Kubernetes");
    const inShell = async (args: readonly string[], time = "") => {
      const run = await shell.exec(
        args.map((arg) => arg.replace("NAME.db", name).replace("TIME", time)),
      );
      expect(run).toMatchObject({ exitCode: 0 });
      return run;
    };
    const restored = await inShell(restore);
    const [, time] = /plants\.db-replaced-([^"]+)"/.exec(restored.stderr) ?? [];
    expect(await inShell(add, time)).toMatchObject({
      stderr: "Tokens: 0 made valid, 0 revoked, 0 refused\n1 added, 1 already there, 0 refused\n",
    });

    rmSync(home.at("data/db"), { recursive: true });
    expect(await runToEnd(server.start)).toMatchObject(refused);
    await inShell(restore);
    await using serving = await startServer(server.start);
    expect((await post(serving.url, ivy({ id: fern().id }), { token })).status).toBe(409);
  });
});
