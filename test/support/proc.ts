import { existsSync, readFileSync } from "node:fs";

/** What a process holds in memory now, and has held at its most; in bytes: proc_pid_status(5). */
export function memoryOf(pid: number): { now: number; most: number } {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  const bytes = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]) * 1024;
  return { now: bytes("VmRSS"), most: bytes("VmHWM") };
}

/**
 * The most memory that a program has until it ends, in bytes. `maxRSS` begins with that of its
 * parent.
 */
export async function peakMemory(program: Bun.Subprocess): Promise<number> {
  let peak = 0;
  while (program.exitCode === null && program.signalCode === null) {
    // It may have ended since.
    if (existsSync(`/proc/${program.pid}/status`))
      peak = Math.max(peak, memoryOf(program.pid).most || 0);
    await Bun.sleep(5);
  }

  return peak;
}

/**
 * What processes have spent on the CPU so far, all their threads together, in microseconds:
 * proc_pid_stat(5).
 */
export function cpuMicros(pids: readonly number[]): number {
  return pids.map(cpuMicrosOf).reduce((sum, micros) => sum + micros, 0);
}

function cpuMicrosOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  // The second field, the name in parentheses, may itself have spaces.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  // Linux counts in hundredths of a second for programs, whatever its own clock.
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}
