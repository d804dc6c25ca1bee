import { expect } from "bun:test";

import {
  INTACT,
  type Ledger,
  makeLedger,
  printed,
  type Verdict,
  worse,
} from "../support/ledger.ts";
import { startLoad } from "../support/load.ts";
import { type start, type StartOptions, startServer } from "../support/program.ts";
import { type Disk, makeDisk } from "../support/shim.ts";
import { stop } from "./health.ts";

/**
 * A re-send settles what is unknown: nothing else than stored or taken can come of it; then a clean
 * end.
 */
export async function settle(options: StartOptions, ledger: Ledger): Promise<void> {
  await using server = await startServer(options);
  const unknown = ledger.unknown();
  const load = startLoad({ url: server.url, connections: 8, ledger, next: () => unknown.pop() });
  const { responses, unanswered } = await load.end;
  expect(unanswered).toBe(0);
  expect(["200", "409/4091"]).toEqual(expect.arrayContaining(Object.keys(responses)));
  expect(await stop(server)).toBe(0);
}

/** Where a program listens; nothing if it ends before. */
export async function urlOf({ stderr }: ReturnType<typeof start>): Promise<string | undefined> {
  const listening = await stderr.until(/listens on (http:\S+?)[,\s]/).catch(() => undefined);
  return listening?.[1];
}

/** How to start a program on a free port. */
export function onFreePort({ args = [], ...options }: StartOptions): StartOptions {
  return { args: ["--port", "0", ...args], ...options };
}

/**
 * Runs an experiment on a disk of its own for each number of what fails there. A number past the
 * end of a run fails nothing, and is the last one. With `endsEarly: false` all numbers are tried,
 * because the runs differ in where they end. `TEST_FAULT` runs one number only.
 */
export async function eachFault(
  experiment: string,
  numbers: Iterable<number>,
  run: (disk: Disk, ledger: Ledger, number: number) => Promise<Verdict>,
  { endsEarly = true } = {},
): Promise<{ readonly verdict: Verdict; readonly faults: number }> {
  let verdict = INTACT;
  let faults = 0;
  let told = 0;
  let acknowledged = 0;

  const { TEST_FAULT } = process.env;
  for (const number of TEST_FAULT === undefined ? numbers : [Number(TEST_FAULT)]) {
    using disk = makeDisk({ shim: true });
    const ledger = makeLedger();
    verdict = worse(verdict, await run(disk, ledger, number));
    acknowledged += ledger.acknowledgements();
    told += Number(disk.isRaised("told"));
    if (disk.isRaised("hit")) faults++;
    else if (endsEarly) break;
  }

  const size = `${faults} faults, ${told} told to another server, ${acknowledged} acknowledged`;
  return { verdict: printed(experiment, size, verdict), faults };
}
