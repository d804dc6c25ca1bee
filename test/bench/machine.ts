import { closeSync, fdatasyncSync, openSync, writeSync } from "node:fs";
import { availableParallelism, cpus, release } from "node:os";
import { join } from "node:path";
import { emptyDirectory } from "../support/program.ts";
import { median } from "./statistics.ts";

/** Whatever makes two machines' figures differ, in a line. */
export function describeMachine(): string {
  const cores = `${availableParallelism()} cores of ${cpus()[0]?.model}`;
  return `${cores}, Linux ${release()}, Bun ${Bun.version}, ${fsyncMicros().toFixed(0)} µs an fsync of 4 KiB`;
}

function fsyncMicros(): number {
  using directory = emptyDirectory();
  const file = openSync(join(directory.path, "fsync"), "w");
  const micros = Array.from({ length: 200 }, () => {
    const start = performance.now();
    writeSync(file, new Uint8Array(4096));
    fdatasyncSync(file);
    return (performance.now() - start) * 1_000;
  });
  closeSync(file);
  return median(micros);
}
