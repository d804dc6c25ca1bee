/**
 * The most memory that a program has until it ends, in bytes, as the kernel has it for this program alone: `maxRSS`
 * begins with that of the process that started it. See VmHWM in proc_pid_status(5).
 */
export async function peakMemory(program: Bun.Subprocess): Promise<number> {
  let peak = 0;
  while (program.exitCode === null && program.signalCode === null) {
    const status = await Bun.file(`/proc/${program.pid}/status`)
      .text()
      .catch(() => "");
    peak = Math.max(peak, Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1] ?? 0) * 1024);
    await Bun.sleep(5);
  }
  return peak;
}
