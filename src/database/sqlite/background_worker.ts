// The Worker for what takes SQLite long, because it blocks the thread: it moves pages from the WAL
// into the database while the writer's Worker adds plants, checks whole files and copies them.
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
 * How long the check beside a server rests after a step, as a multiple of the step's time: it uses a
 * fifth of a processor on an idle server, and a hundredth while plants are written.
 */
const REST = { quiet: 4, writing: 99 };

/**
 * Up to how many pages are checked at once beside a server: 100 MB, a third of a second in which
 * the WAL grows.
 */
const WHOLE_PAGES = 25_000;

/** The database of the writer whose checkpoint passes this Worker makes. */
let opened: { readonly client: Client; readonly pass: () => void } | undefined;

/** Resolves once the check is to end. */
const stopped = Promise.withResolvers<boolean>();
let checking: Promise<Checked> | undefined;

const api = {
  /** Opens the database of a writer. Called at most once, before `pass`. */
  open(path: string): void {
    const client = connect(path, { access: "write" });
    opened = { client, pass: passOf(client) };
  },

  /** Moves what is in the WAL now into the database, and syncs that. */
  pass: (): void => opened?.pass(),

  /**
   * Checks a database.
   *
   * @param identity Of the file that a server has open, as of `identityOf`. The server needs the
   *   processor, and the WAL short: of a large file the check takes short steps, and rests between
   *   them.
   */
  check(path: string, identity?: string): Promise<Checked> {
    checking = check(path, identity !== undefined).finally(() => {
      // A finding in another file says nothing about the one that the server has open.
      if (identity !== undefined && identityOf(path) !== identity)
        throw new Error("the file was removed or replaced");
    });
    return checking;
  },

  /** Copies a database into a new file. Returns how many plants the copy has. */
  copy(path: string, target: string): number {
    using client = connect(path, { access: "read" });
    client.run("VACUUM INTO ?", [target]);
    using copied = new Client(target, { readonly: true });
    return numberFrom(copied, "SELECT count(*) FROM plants");
  },

  /**
   * Ends a check after its current step, and closes the connections. SQLite makes a checkpoint when the
   * last connection closes: that is the store's, which closes after this Worker.
   */
  async close(): Promise<void> {
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
 * Moves pages and syncs the database. SQLite itself syncs it only in the checkpoint that moves the
 * last page of the WAL. That one is the writer's, and would wait for all pages moved before.
 */
function passOf(client: Client): () => void {
  const passive = client.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  // Never closed: closing any descriptor of a file drops the process's locks on it, and so SQLite's
  // own.
  const file = openSync(client.filename, "r");
  return () => {
    const [[busy] = []] = passive.values();
    // Another process that makes a checkpoint syncs what it moves.
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

/** Runs a check step by step, and rests in between. Returns the plants; `undefined` if stopped. */
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

    // Rests for a turn of the event loop at least: a request to stop ends the rest.
    const restMs = rest * (performance.now() - begin);
    if (await withDeadline(stopped.promise, restMs, () => false)) return undefined;
  }
}
