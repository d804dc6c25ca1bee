import { executable } from "./executable.ts";
import { blocks } from "./guides.ts";
import { skipped, skipsWithout } from "./missing.ts";
import { runToEnd, type StartOptions } from "./program.ts";

interface Container {
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value: string }[];
  readonly workingDir?: string;
}

interface Pod {
  readonly securityContext: { readonly runAsUser: number; readonly fsGroup: number };
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
 * The container of a pod, as its user, without a capability, on a system that is read-only except for
 * the volumes.
 *
 * @param volumes Where the paths of the container are here.
 */
export async function containerIn(
  manifest: string,
  volumes: Readonly<Record<string, string>>,
): Promise<PodContainer> {
  const { securityContext, containers } = await podOf(manifest);
  const { runAsUser: user, fsGroup: group } = securityContext;
  const [{ args: own = [], env = [], workingDir = "/" } = {}] = containers;
  const asPod = [
    ...Object.values(volumes).map((volume) => `mount --bind "${volume}" "${volume}"`),
    "mount -o remount,bind,ro /",
    `exec setpriv --reuid=${user} --regid=${group} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`,
  ].join(" && ");
  const here = (text: string) =>
    Object.entries(volumes).reduce(
      (replaced, [mountPath, volume]) =>
        replaced.replace(new RegExp(`(?<=^|:)${mountPath}(?=/|$)`), volume),
      text,
    );

  // Its PATH is for kubectl.
  const variables = env.filter(({ name }) => name !== "PATH");
  const options = (args: readonly string[]) => ({
    cwd: here(workingDir),
    program: ["unshare", "--mount", "sh", "-c", asPod, "sh", ...executable(), ...args.map(here)],
    env: {
      NODE_ENV: "production",
      ...Object.fromEntries(variables.map(({ name, value }) => [name, here(value)])),
    },
  });
  return { start: options(own), exec: (args) => runToEnd(options(args)) };
}

interface PodContainer {
  /** How it starts. */
  readonly start: StartOptions;
  /** Runs a command of the program in it. */
  readonly exec: (args: readonly string[]) => ReturnType<typeof runToEnd>;
}

/** The arguments of the program in the lines of a section that `kubectl exec` runs. */
export function execLines(heading: string): string[][] {
  const lines = blocks(heading, "sh").join("");
  return Array.from(
    lines.matchAll(/^kubectl exec \S+ -- plant-store ([^|>\n]*)/gm),
    ([, command = ""]) => command.trim().split(" "),
  );
}

/** Whether pods cannot be run here. */
export function skipsPods(): boolean {
  return (
    (process.getuid?.() !== 0 && skipped("the pods of Kubernetes: their user needs root")) ||
    ["unshare", "mount", "setpriv"].some((program) => skipsWithout(program, "util-linux"))
  );
}
