import { expect, test } from "bun:test";
import { loadavg } from "node:os";
import { INTACT, printed } from "../support/ledger.ts";
import { printedSeed } from "../support/load.ts";
import { skipsProc } from "../support/program.ts";
import { DESCRIPTOR_BOUND, type Soak, soak, type SoakWindow } from "./soak.ts";

/** `SOAK_SECONDS=300 bun test ./test/faults/soak.long.ts` is the whole of it. */
const SECONDS = Number(process.env["SOAK_SECONDS"] ?? 30);

/**
 * How much more memory the last tenth may take than the first one, in MiB. The caches that fill meanwhile are bounded:
 * 10,000 JWTs that were accepted take some of it, and SQLite's pages some.
 */
const MEMORY_BOUND = 64;

/** Of the good clients' requests, the share that may get a 503. */
const REFUSED_SHARE_BOUND = 0.01;

test.skipIf(skipsProc())(
  "a server under good, bad and hostile load loses nothing, responds as it should, and does not grow",
  async () => {
    const seed = printedSeed("soak");
    console.log(`load average ${loadavg().map((load) => load.toFixed(1))} before`);
    const report = await soak({ seconds: SECONDS, seed });
    expect(printed(report)).toEqual(INTACT);
    printTable(report);
    expect(report.unexpected.slice(0, 10)).toEqual([]);
    expect(report.refusedShare).toBeLessThanOrEqual(REFUSED_SHARE_BOUND);
    expect(report.last.plants).toBeGreaterThan(0);
    expect(report.descriptors.after).toBeLessThanOrEqual(report.descriptors.before + DESCRIPTOR_BOUND);
    expect(report.last.memory - report.first.memory).toBeLessThanOrEqual(MEMORY_BOUND);
  },
  (1.1 * SECONDS + 180) * 1_000,
);

function printTable({ first, last, descriptors, seen }: Soak): void {
  const row = (name: string, of: keyof SoakWindow, digits: number) =>
    `| ${name} | ${first[of].toFixed(digits)} | ${last[of].toFixed(digits)} |`;
  const rows = [
    row("memory (VmRSS, MiB)", "memory", 0),
    row("open descriptors", "descriptors", 0),
    row("WAL (MiB, at most)", "wal", 0),
    row("p50 of good requests (ms)", "p50", 1),
    row("p99 of good requests (ms)", "p99", 1),
    row("good plants a second", "plants", 0),
  ];
  console.log(`|  | first tenth | last tenth |\n| --- | --- | --- |\n${rows.join("\n")}`);
  console.log(`descriptors of the idle server: ${descriptors.before} before, ${descriptors.after} after`);
  for (const [name, counts] of Object.entries(seen)) console.log(`${name}: ${JSON.stringify(counts)}`);
}
