// The Worker that checks a database for corruption: SQLite blocks the thread it runs on, and a large file takes long.
import type { Database } from "bun:sqlite";
import { withDeadline } from "../../async/deadline.ts";
import { connect } from "./connection.ts";
import { identityOf } from "./corruption.ts";
import { corruptionIn } from "./errors.ts";
import {
  checkIntegrity,
  type IntegrityCheckRequest,
  type IntegrityReport,
  type IntegrityRequest,
} from "./integrity.ts";

declare const self: Worker;

/**
 * How long the Worker rests after a step beside a server, in times of that step: it takes a fifth of a processor while
 * nothing is written, and a hundredth while plants are.
 */
const REST = { quiet: 4, writing: 99 };

/** Up to how many pages all are checked together beside a server: a third of a second, in which the WAL grows. 100 MB. */
const WHOLE_PAGES = 25_000;

const stop = Promise.withResolvers<void>();
let [checking, stopped] = [false, false];

self.addEventListener("message", async ({ data: request }: MessageEvent<IntegrityRequest>) => {
  if (request.type === "check") return respond(await runCheck(request));
  stopped = true;
  stop.resolve();
  if (!checking) respond({ type: "stopped" });
});
respond({ type: "ready" });

/** The connection is closed when this resolves: the last one to close a database removes its WAL. */
async function runCheck(request: IntegrityCheckRequest): Promise<IntegrityReport> {
  checking = true;
  try {
    using client = openSameFile(request);
    return await checkSteps(client, request);
  } catch (error) {
    const finding = corruptionIn(error);
    if (finding !== undefined) return { type: "corrupt", finding };
    return { type: "failed", reason: error instanceof Error ? error.message : String(error) };
  }
}

/** What another file at the path is like says nothing about the one that the server has open. */
function openSameFile({ path, file }: IntegrityCheckRequest): Database {
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

async function checkSteps(client: Database, { background }: IntegrityCheckRequest): Promise<IntegrityReport> {
  const pages = firstOf(client, "PRAGMA page_count");
  // Counting reads the whole file once more, for a share that only a person wants to see.
  const total = background ? 0 : firstOf(client, "SELECT count(*) FROM plants");
  const steps = checkIntegrity(client, { whole: !background || pages <= WHOLE_PAGES });
  const isWriting = writeDetector(client);
  for (;;) {
    const begin = performance.now();
    const { done, value: plants } = steps.next();
    if (!background) respond({ type: "progress", plants, total });
    if (done) return { type: "sound", plants, pages };
    const rest = isWriting() ? REST.writing : REST.quiet;
    // At least a turn of the event loop: a request to stop ends the rest.
    await withDeadline(stop.promise, background ? rest * (performance.now() - begin) : 0, () => {});
    if (stopped) return { type: "stopped" };
  }
}

/** Makes what returns whether another connection has committed since the last call. */
function writeDetector(client: Database): () => boolean {
  let last = firstOf(client, "PRAGMA data_version");
  return () => last !== (last = firstOf(client, "PRAGMA data_version"));
}

function firstOf(client: Database, query: string): number {
  return Number(client.query(query).values()[0]?.[0]);
}

function respond(message: IntegrityReport): void {
  self.postMessage(message);
}
