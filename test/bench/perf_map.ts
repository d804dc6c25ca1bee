/**
 * Turns a dump of JavaScriptCore's compiled functions into a map for `perf report`, which reads it
 * from `/tmp/perf-PID.map`. `src/HACKING.md` has the commands.
 *
 * The format of the dump is perf's own (tools/perf/Documentation/jitdump-specification.txt): a
 * header that names its size, then records, each with its kind and size.
 */
import { readFileSync } from "node:fs";

const { buffer } = new Uint8Array(readFileSync(process.argv[2] ?? ""));
const view = new DataView(buffer);
const HEADER_SIZE_AT = 8;
const RECORD_HEADER = 16;
/** The kind of a record that has a compiled function. */
const CODE_LOAD = 0;

const lines: string[] = [];
let at = view.getUint32(HEADER_SIZE_AT, true);

while (at + RECORD_HEADER <= view.byteLength) {
  const kind = view.getUint32(at, true);
  const size = view.getUint32(at + 4, true);
  if (size === 0) break;

  if (kind === CODE_LOAD) {
    const address = view.getBigUint64(at + 32, true).toString(16);
    const length = view.getBigUint64(at + 40, true).toString(16);
    lines.push(`${address} ${length} ${nameAt(at + 56)}`);
  }
  at += size;
}

console.log(lines.toSorted().join("\n"));

/** A name ends with a zero byte; the code follows it. */
function nameAt(start: number): string {
  let end = start;
  while (view.getUint8(end) !== 0) end++;
  return new TextDecoder().decode(buffer.slice(start, end));
}
