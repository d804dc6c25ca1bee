import { mkdirSync, readFileSync } from "node:fs";

import { skipped, skipsWithout } from "../support/missing.ts";
import { emptyDirectory } from "../support/program.ts";

/** Whether this machine cannot boot a copy of itself. */
export function skipsBooting(): boolean {
  if (process.getuid?.() !== 0) return skipped("a booted systemd: it needs root");
  return (
    skipsWithout("systemd-nspawn", "systemd-container") ||
    skipsWithout("dpkg", "dpkg") ||
    skipsWithout("nsenter", "util-linux")
  );
}

/**
 * Boots systemd in a container with this machine's own files. What it writes is kept in memory, and
 * gone at the end of the scope. It has a network of its own, and none of the machine's services.
 */
export async function bootMachine() {
  await using stack = new AsyncDisposableStack();
  const directory = stack.use(emptyDirectory());
  const [changes, root] = [directory.at("changes"), directory.at("root")];
  for (const path of [changes, root]) mkdirSync(path);

  await Bun.$`mount -t tmpfs tmpfs ${changes}`.quiet();
  stack.defer(async () => void (await Bun.$`umount --lazy ${changes}`.quiet()));
  for (const name of ["upper", "work"]) mkdirSync(`${changes}/${name}`);
  const layers = `lowerdir=/,upperdir=${changes}/upper,workdir=${changes}/work`;
  await Bun.$`mount -t overlay overlay -o ${layers} ${root}`.quiet();
  stack.defer(async () => void (await Bun.$`umount --lazy ${root}`.quiet()));

  const flags = ["--register=no", "--keep-unit", "--quiet", "--console=pipe", "--private-network"];
  const container = Bun.spawn(
    ["systemd-nspawn", ...flags, "-D", root, "--boot", "systemd.unit=basic.target"],
    { stdin: "ignore", stdout: "ignore", stderr: "ignore" },
  );
  stack.defer(async () => {
    container.kill("SIGTERM");
    await container.exited;
  });

  const run = async (script: string) => {
    const namespaces = ["-m", "-u", "-i", "-n", "-p", "-r", "-w"];
    const enter = ["nsenter", "-t", String(firstProcessOf(container.pid)), ...namespaces];
    const child = Bun.spawn([...enter, "sh", "-c", `cd /root; ${script}`], {
      env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/root" },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    const [stdout, stderr] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    return { exitCode: await child.exited, stdout, stderr };
  };

  // Without its services, a machine may count as degraded: it has booted all the same.
  let state = "";
  while (!/^(?:running|degraded)$/.test(state)) {
    if (container.exitCode !== null) throw new Error("systemd-nspawn has ended");
    await Bun.sleep(50);
    state = (
      await run("systemctl is-system-running 2>/dev/null").catch(() => ({ stdout: "" }))
    ).stdout.trim();
  }

  const booted = stack.move();
  return {
    /** Where the files of the machine are seen from outside. */
    root,
    /** Runs a script there, as root. */
    run,
    [Symbol.asyncDispose]: () => booted.disposeAsync(),
  };
}

/** The first process of a container: the only child of what made it. */
function firstProcessOf(pid: number): number {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return Number(children.split(" ")[0]);
}
