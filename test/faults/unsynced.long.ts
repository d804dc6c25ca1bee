import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { INTACT, makeLedger, printed, type Report } from "../support/ledger.ts";
import { limited, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { exitCodeOf, LONG_TEST_TIMEOUT_MS, start, type StartOptions, startServer } from "../support/program.ts";
import { programOf } from "../support/mutant.ts";
import { range } from "../support/scale.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import { onFreePort } from "./settle.ts";
import { TRUST_PAGE_CACHE } from "./mutations.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const ends = [
  { how: "killed", more: 0 },
  { how: "failed", more: 0 },
  { how: "failed", more: 8 },
] as const;

test.skipIf(skipsShim()).each(ends)(
  "what a server leaves unsynced is synced before the next one acknowledges it, or more ($how, $more more)",
  async (end) => {
    const seed = printedSeed("unsynced");
    for (const run of range(1, 10)) {
      expect(printed(await unsynced({ seed: seed + run, ...end }))).toEqual(INTACT);
    }
  },
);

test.skipIf(skipsShim())("after a failed fsync no server starts beside a process that reads what it left", async () => {
  const seed = printedSeed("unsynced, beside a reader");
  expect(printed(await unsynced({ seed, how: "failed", more: 8, reads: true }))).toEqual(INTACT);
});

test.skipIf(skipsShim()).each(["killed", "failed"] as const)(
  "the power loss notices a server that takes the page cache for the disk (%s)",
  async (how) => {
    using bug = programOf(TRUST_PAGE_CACHE);
    const verdict = printed(await unsynced({ how, more: 0, ...bug }));
    expect(verdict.lost).toBeGreaterThan(0);
  },
);

/** How to leave plants behind that are written and not synced. */
interface UnsyncedOptions {
  readonly seed: number;
  /** How the server ends: killed while an fsync goes on, or by itself after one that failed. */
  readonly how: "killed" | "failed";
  /** How many other plants the next server is sent after what it finds stored: an fsync for them is one for those, too. */
  readonly more: number;
  /** Whether a process that only reads is there before the next server, which must not start beside it. @default {false} */
  readonly reads?: boolean;
  /** @default the executable */
  readonly program?: readonly string[];
}

/**
 * Ends a server in the middle of an fsync, sends what it left in the page cache to a next server, which finds it
 * stored, and some plants more, and then loses power: what is acknowledged may not rest on what was never synced.
 */
async function unsynced({ seed, how, more, program, reads = false }: UnsyncedOptions): Promise<Report> {
  const began = performance.now();
  using disk = makeDisk({ shim: true });
  const options = disk.server({ faults: { power: true, seed }, program });
  const ledger = makeLedger();
  const next = randomPlants(randomFrom(seed), { again: 0 });
  {
    await using server = await startServer(options);
    await startLoad({ url: server.url, connections: 8, ledger, next: limited(next, 100) }).end;
    disk.raise(how === "killed" ? "hang" : "fail-sync");
    // One plant is one transaction: were there a second one, its fsync would bring the first to the disk.
    const load = startLoad({ url: server.url, connections: 1, ledger, next: limited(next, 1), endOn: ["503/5032"] });
    await disk.hit();
    if (how === "killed") server.child.kill("SIGKILL");
    await Promise.all([load.end, exitCodeOf(server.child)]);
  }
  disk.clear(how === "killed" ? "hang" : "fail-sync");
  if (reads) await requireRefused(options, disk.database);
  const unknown = ledger.unknown();
  let left = more;
  {
    await using server = await startServer(options);
    const resend = () => unknown.pop() ?? (left-- > 0 ? next() : undefined);
    await startLoad({ url: server.url, connections: 1, ledger, next: resend }).end;
    server.child.kill("SIGKILL");
    await server.child.exited;
  }
  disk.losePower();
  const experiment = `an fsync ${how === "killed" ? "cut by kill -9" : "that failed"}, re-sends, ${more} more, power loss`;
  return { experiment, size: `${ledger.acknowledgements()} acknowledged`, verdict: ledger.judge(disk.database), began };
}

/** Reads what the failed fsync left, and requires that no server starts meanwhile. */
async function requireRefused(options: StartOptions, database: string): Promise<void> {
  using reader = new Database(database, { readonly: true });
  reader.run("BEGIN");
  reader.query("SELECT count(*) FROM plants").get();
  await using program = start(onFreePort(options));
  const [line] = await program.stderr.until(/listens on|another process is reading the WAL/);
  if (line === "listens on") throw new Error("A server listens beside the reader");
  const exitCode = await exitCodeOf(program.child);
  if (exitCode !== 1) throw new Error(`A server beside the reader ended with ${exitCode}`);
}
