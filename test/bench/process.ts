import { readFileSync } from "node:fs";

/** What processes have spent on the CPU so far, all their threads together, in microseconds: proc_pid_stat(5). */
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

/** The most memory that a process has had at once, in bytes: VmHWM in proc_pid_status(5). */
export function peakMemory(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}
