// The Worker that checks a database for damage: SQLite blocks the thread it runs on, and a large file takes long.
import type { Database } from "bun:sqlite";
import { withDeadline } from "../../async/deadline.ts";
import { connect } from "./connection.ts";
import { identityAt } from "./damage_mark.ts";
import { findingOf } from "./errors.ts";
import { checkIntegrity } from "./integrity.ts";
import type { IntegrityReport, IntegrityRequest, IntegrityStop } from "./integrity_client.ts";

declare const self: Worker;

/** Beside a server the Worker rests four times as long as it works: it takes a fifth of one processor at most. */
const REST = 4;

/** Up to how many pages all are checked together beside a server: a third of a second, in which the WAL grows. 100 MB. */
const WHOLE_PAGES = 25_000;

const stop = Promise.withResolvers<void>();
let [checking, stopped] = [false, false];

self.addEventListener("message", async ({ data: request }: MessageEvent<IntegrityRequest | IntegrityStop>) => {
  if (request.type === "check") return respond(await check(request));
  stopped = true;
  stop.resolve();
  if (!checking) respond({ type: "stopped" });
});
respond({ type: "ready" });

/** The connection is closed when this resolves: the last one to close a database removes its WAL. */
async function check(request: IntegrityRequest): Promise<IntegrityReport> {
  checking = true;
  try {
    using client = open(request);
    return await checkSteps(client, request);
  } catch (error) {
    const finding = findingOf(error);
    if (finding !== undefined) return { type: "damaged", finding };
    return { type: "failed", reason: error instanceof Error ? error.message : String(error) };
  }
}

/** What another file at the path is like says nothing about the one that the server has open. */
function open({ path, file }: IntegrityRequest): Database {
  let [client, failure]: [Database | undefined, unknown] = [undefined, undefined];
  try {
    client = connect(path, { access: "read" });
  } catch (error) {
    failure = error;
  }
  if (file !== undefined && identityAt(path) !== file) {
    client?.close();
    throw new Error("the file was removed or replaced");
  }
  if (client === undefined) throw failure;
  return client;
}

async function checkSteps(client: Database, { background }: IntegrityRequest): Promise<IntegrityReport> {
  const pages = pragma(client, "page_count");
  // Counting reads the whole file once more, for a share that only a person wants to see.
  const total = background ? 0 : Number(client.query("SELECT count(*) FROM plants").values()[0]?.[0]);
  const steps = checkIntegrity(client, { whole: !background || pages <= WHOLE_PAGES });
  for (;;) {
    const begin = performance.now();
    const { done, value: plants } = steps.next();
    if (!background) respond({ type: "progress", plants, total });
    if (done) return { type: "sound", plants, pages };
    // A turn of the event loop, too: there may be a request to stop, which ends the rest.
    await withDeadline(stop.promise, background ? REST * (performance.now() - begin) : 0, () => {});
    if (stopped) return { type: "stopped" };
  }
}

function pragma(client: Database, name: string): number {
  return Number(client.query(`PRAGMA ${name}`).values()[0]?.[0]);
}

function respond(message: IntegrityReport): void {
  self.postMessage(message);
}
