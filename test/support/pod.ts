import { expect } from "bun:test";

import type { NewPlant } from "../../src/plant/plant.ts";
import { post, untilTokenIs } from "./client.ts";
import { executable } from "./executable.ts";
import { skipped, skipsWithout } from "./missing.ts";
import { runToEnd, startServer } from "./program.ts";

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

/** The pod in a manifest, or that of its workload. */
export async function podOf(manifest: string): Promise<Pod> {
  const read = Bun.YAML.parse(await Bun.file(manifest).text()) as
    { spec?: Workload | Pod } | { spec?: Workload | Pod }[];
  const pod = [read].flat().flatMap(({ spec }) => {
    if (spec !== undefined && "containers" in spec) return spec;
    return (spec?.jobTemplate?.spec ?? spec)?.template?.spec ?? [];
  })[0];
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
export function runnerOf(
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
export async function runPod(
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
 * Starts a pod that serves, and stores a plant with the token that created its database.
 *
 * @param meanwhile Called with a function that stores another plant.
 */
export async function servePod(
  manifest: string,
  volumes: Readonly<Record<string, string>>,
  meanwhile?: (store: (plant: NewPlant) => Promise<Response>) => Promise<void>,
): Promise<void> {
  const pod = await podOf(manifest);
  const inPod = runnerOf(pod, volumes, "plant-store");

  const [container = {}] = pod.containers;

  // A claim that is new, or was lost, is not a first start.
  expect(await runToEnd(inPod(container))).toMatchObject({ exitCode: 1, stdout: "" });
  const created = await runToEnd(inPod({ ...container, args: ["token", "create", "greenhouse"] }));
  const token = created.stdout.trim();
  await using server = await startServer(inPod(container));
  await untilTokenIs(200, server.url, token);
  await meanwhile?.((plant) => post(server.url, plant, { token }));
}

/** Whether pods cannot be run here. */
export function skipsPods(): boolean {
  return (
    (process.getuid?.() !== 0 && skipped("the pods of Kubernetes: their user needs root")) ||
    ["unshare", "mount", "setpriv"].some((program) => skipsWithout(program, "util-linux"))
  );
}
