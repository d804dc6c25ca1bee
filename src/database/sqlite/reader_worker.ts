// The Worker that reads a whole file, to check or to copy it: SQLite blocks the thread for as long.
import { Database } from "bun:sqlite";
import { withDeadline } from "../../async/deadline.ts";
import type { CheckProgress, CheckResult } from "../adapter.ts";
import { connect } from "./connection.ts";
import { identityOf } from "./fail_stop.ts";
import { corruptionIn } from "./errors.ts";
import { checkIntegrity, type CheckRequest } from "./integrity.ts";
import { reportNews, serveCalls } from "./worker_calls.ts";

/**
 * How long the check beside a server rests after a step, in times of that step: it takes a fifth of a processor while
 * nothing is written, and a hundredth while plants are.
 */
const REST = { quiet: 4, writing: 99 };

/** Up to how many pages are checked together beside a server: 100 MB, a third of a second in which the WAL grows. */
const WHOLE_PAGES = 25_000;

const stop = Promise.withResolvers<void>();
let stopped = false;
let checked: Promise<unknown> = Promise.resolve();

const api = {
  /** Does nothing: the response tells that the Worker runs. */
  start(): void {},
  check(request: CheckRequest): Promise<CheckResult> {
    const result = check(request);
    checked = result.catch(() => {});
    return result;
  },
  /** Ends the check after the step it is in. Resolves when its connection is closed. */
  async stop(): Promise<void> {
    stopped = true;
    stop.resolve();
    await checked;
  },
  /** Copies a database into a new file. Returns how many plants the copy has. */
  copy(path: string, target: string): number {
    using client = new Database(path, { readonly: true });
    client.run("PRAGMA busy_timeout = 5000");
    client.run("VACUUM INTO ?", [target]);
    using copied = new Database(target, { readonly: true });
    return firstOf(copied, "SELECT count(*) FROM plants");
  },
};

/** The methods of this Worker. */
export type ReaderApi = typeof api;

serveCalls(api);

async function check(request: CheckRequest): Promise<CheckResult> {
  try {
    using client = openSameFile(request);
    return await checkSteps(client, request);
  } catch (error) {
    const finding = corruptionIn(error);
    if (finding === undefined) throw error;
    return { type: "corrupt", finding };
  }
}

/** Corruption in another file at the path says nothing about the one that the server has open. */
function openSameFile({ path, file }: CheckRequest): Database {
  const requireSameFile = () => {
    if (file !== undefined && identityOf(path) !== file) throw new Error("the file was removed or replaced");
  };
  let client: Database | undefined;
  try {
    client = connect(path, { access: "read" });
    requireSameFile();
    return client;
  } catch (error) {
    client?.close();
    requireSameFile();
    throw error;
  }
}

async function checkSteps(client: Database, { background }: CheckRequest): Promise<CheckResult> {
  const pages = firstOf(client, "PRAGMA page_count");
  // Counting reads the whole file once more, for a share that only a person wants to see.
  const total = background ? 0 : firstOf(client, "SELECT count(*) FROM plants");
  const steps = checkIntegrity(client, { whole: !background || pages <= WHOLE_PAGES });
  let version = dataVersion(client);
  for (;;) {
    const begin = performance.now();
    const { done, value: plants } = steps.next();
    if (!background) reportNews({ plants, total } satisfies CheckProgress);
    if (done) return { type: "sound", plants, pages };
    const isWriting = version !== (version = dataVersion(client));
    const rest = isWriting ? REST.writing : REST.quiet;
    // At least a turn of the event loop: a request to stop ends the rest.
    await withDeadline(stop.promise, background ? rest * (performance.now() - begin) : 0, () => {});
    if (stopped) return { type: "stopped" };
  }
}

/** Changes when another connection commits. */
function dataVersion(client: Database): number {
  return firstOf(client, "PRAGMA data_version");
}

function firstOf(client: Database, query: string): number {
  return Number(client.query(query).values()[0]?.[0]);
}
