// The Worker for slow calls to SQLite, which block their thread: checkpoints while the writer's Worker adds
// plants, checks of whole files, and copies.
import { fdatasyncSync, openSync } from "node:fs";

import { withDeadline } from "../../async/timers.ts";
import type { CheckResult } from "../adapter.ts";
import { Client, connect } from "./bun_driver.ts";
import { numberFrom } from "./driver.ts";
import { corruptionIn, FailedSyncError } from "./errors.ts";
import { identityOf } from "./file_identity.ts";
import { checkIntegrity, checkWhole } from "./integrity.ts";
import { serveCalls } from "./worker_calls.ts";

/**
 * How long the check beside a server pauses after a step, as a multiple of the step's duration. It uses a
 * fifth of a processor on an idle server, and a hundredth while plants are written.
 */
const REST = { quiet: 4, writing: 99 };

/**
 * Up to how many pages a file is checked in one step beside a server: 100 MB. That takes a third of a second,
 * in which the WAL cannot restart.
 */
const WHOLE_PAGES = 25_000;

/** The writer's database, for its checkpoints. */
let opened: { readonly client: Client; readonly pass: () => void } | undefined;

/** Resolves once the check should stop. */
const stopped = Promise.withResolvers<boolean>();
let isStopped = false;
let checking: Promise<Checked> | undefined;

const api = {
  /** Opens the database of a writer. Called at most once, before `pass`. */
  open(path: string): void {
    const client = connect(path, { access: "write" });
    opened = { client, pass: passOf(client) };
  },

  /** Moves pages from the WAL into the database file, and fsyncs the file. */
  pass: (): void => opened?.pass(),

  /**
   * Checks a database.
   *
   * @param identity The identity of the file that a server has open, from `identityOf`. Then the check of a
   *   large file takes short steps with pauses, because the server needs the processor and a short WAL.
   */
  async check(path: string, identity?: string): Promise<Checked> {
    // A failed store ends this Worker after `close`. Bun then runs a TRUNCATE checkpoint on each connection
    // that is open, even on one that only reads.
    if (isStopped) return undefined;

    checking = check(path, identity !== undefined).finally(() => {
      // A finding in another file says nothing about the one that the server has open.
      if (identity !== undefined && identityOf(path) !== identity)
        throw new Error("the file was removed or replaced");
    });
    return checking;
  },

  /** Copies a database into a new file. Returns the number of plants in the copy. */
  copy(path: string, target: string): number {
    using client = connect(path, { access: "read" });
    client.run("VACUUM INTO ?", [target]);
    using copied = new Client(target, { readonly: true });
    return numberFrom(copied, "SELECT count(*) FROM plants");
  },

  /**
   * Ends a check after its current step, and closes the connections. SQLite runs a checkpoint when the last
   * connection closes, which is the store's: it closes after this Worker.
   */
  async close(): Promise<void> {
    isStopped = true;
    stopped.resolve(true);
    await checking?.catch(() => {});
    // Disposing finalizes the statements. After `close()` they would keep the connection open, until it is
    // the last one.
    opened?.client[Symbol.dispose]();
  },
};

/** The methods of this Worker. */
export type BackgroundApi = typeof api;

serveCalls(api);

/**
 * Returns a function that runs a PASSIVE checkpoint and fsyncs the database file. SQLite itself fsyncs it only
 * in the checkpoint that moves the last page of the WAL. The writer runs that one, and would wait for the fsync
 * of all pages.
 */
function passOf(client: Client): () => void {
  const passive = client.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  // Never close it: closing any descriptor of a file drops all locks of the process on the file, even
  // SQLite's.
  const file = openSync(client.filename, "r");
  return () => {
    const [[busy] = []] = passive.values();
    // Another process is running a checkpoint, and fsyncs the pages that it moves.
    if (busy !== 0n) return;

    try {
      fdatasyncSync(file);
    } catch (cause) {
      throw new FailedSyncError((cause as Error).message, { cause });
    }
  };
}

/** The result of a check: a finding in one line, or the size of a sound file. `undefined` if stopped. */
export type Checked =
  { readonly finding: string } | (CheckResult & { readonly finding?: undefined }) | undefined;

async function check(path: string, background: boolean): Promise<Checked> {
  try {
    using client = connect(path, { access: "read" });
    const pages = numberFrom(client, "PRAGMA page_count");
    const inSteps = background && pages > WHOLE_PAGES;
    const plants = inSteps ? await checkBesideServer(client) : checkWhole(client);
    return plants === undefined ? undefined : { plants, pages };
  } catch (error) {
    const finding = corruptionIn(error);
    if (finding === undefined) throw error;
    return { finding };
  }
}

/** Runs a check in steps, with pauses. Returns the number of plants; `undefined` if stopped. */
async function checkBesideServer(client: Client): Promise<number | undefined> {
  const steps = checkIntegrity(client);
  // Changes when another connection commits.
  const dataVersion = () => numberFrom(client, "PRAGMA data_version");
  let before = dataVersion();

  for (;;) {
    const begin = performance.now();
    const { done, value: plants } = steps.next();
    if (done) return plants;

    const after = dataVersion();
    const rest = after === before ? REST.quiet : REST.writing;
    before = after;

    // Pauses for at least a turn of the event loop. A request to stop ends the pause.
    const restMs = rest * (performance.now() - begin);
    if (await withDeadline(stopped.promise, restMs, () => false)) return undefined;
  }
}
