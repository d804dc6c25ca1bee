import { Database } from "bun:sqlite";
import { expect } from "bun:test";

import { makeLedger, printed, type Verdict } from "../support/ledger.ts";
import { limited, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { exitCodeOf, start, type StartOptions, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { onFreePort } from "./settle.ts";

/** How to leave plants behind that are written and not synced. */
export interface UnsyncedOptions {
  /** How the server ends: killed while an fsync goes on, or by itself after one that failed. */
  readonly how: "killed" | "failed";
  /**
   * How many other plants the next server is sent after what it finds stored: an fsync for them is
   * one for those, too.
   */
  readonly more: number;
  /**
   * Whether a process that only reads is there before the next server, which must not start beside
   * it. @default {false}
   */
  readonly reads?: boolean;
  /** @default the executable */
  readonly program?: readonly string[];
}

/**
 * Kills a server in an fsync, and sends what it left in the page cache to a next server. Then the
 * power is lost: what is acknowledged may not rest on what was never synced.
 */
export async function unsynced({
  how,
  more,
  program,
  reads = false,
}: UnsyncedOptions): Promise<Verdict> {
  const [cut, flag] =
    how === "killed"
      ? (["cut by kill -9", "hang"] as const)
      : (["that failed", "fail-sync"] as const);
  const experiment = `an fsync ${cut}, re-sends, ${more} more, power loss`;
  const seed = printedSeed(experiment);
  using disk = makeDisk({ shim: true });
  const options = disk.server({ faults: { power: true, seed }, program });
  const ledger = makeLedger();
  const next = randomPlants(randomFrom(seed), { again: 0 });

  {
    await using server = await startServer(options);
    await startLoad({ url: server.url, connections: 8, ledger, next: limited(next, 100) }).end;
    disk.raise(flag);
    // One plant is one transaction: were there a second one, its fsync would bring the first to the
    // disk.
    const load = startLoad({
      url: server.url,
      connections: 1,
      ledger,
      next: limited(next, 1),
      endOn: ["503/5032"],
    });
    await disk.hit();
    if (how === "killed") server.child.kill("SIGKILL");
    await Promise.all([load.end, exitCodeOf(server.child)]);
  }

  disk.clear(flag);
  if (reads) await requireRefused(options, disk.database);
  const unknown = ledger.unknown();
  const others = limited(next, more);

  {
    await using server = await startServer(options);
    await startLoad({
      url: server.url,
      connections: 1,
      ledger,
      next: () => unknown.pop() ?? others(),
    }).end;
  }

  disk.losePower();
  return printed(
    experiment,
    `${ledger.acknowledgements()} acknowledged`,
    ledger.judge(disk.database),
  );
}

/** Reads what the failed fsync left, and requires that no server starts meanwhile. */
async function requireRefused(options: StartOptions, database: string): Promise<void> {
  using reader = new Database(database, { readonly: true });
  reader.run("BEGIN");
  reader.query("SELECT count(*) FROM plants").get();
  await using program = start(onFreePort(options));
  const [line] = await program.stderr.until(/listens on|another process is reading the WAL/);
  expect(line).toBe("another process is reading the WAL");
  expect(await exitCodeOf(program.child)).toBe(1);
}
