import type { NewPlant } from "../../src/plant.ts";
import { type Ledger, makeLedger, type Report } from "../support/ledger.ts";
import { type Connection, connect, randomFrom, verdictOf, type WireResponse } from "../support/load.ts";
import { startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { type FuzzCase, fuzzCases } from "./fuzz_cases.ts";

/** How much to send. */
export interface FuzzOptions {
  readonly cases: number;
  readonly seed: number;
  /** @default the program from source */
  readonly program?: readonly string[];
}

/** What the fuzz found, beside what the file holds. */
export interface Fuzz extends Report {
  /** Answers that are not what the oracle says, at most ten of them. */
  readonly surprises: readonly string[];
}

const CONNECTIONS = 32;
/** A damaged request may be an unfinished one. It is given up after this long, in milliseconds. */
const TEST_TIMEOUT_MS = 200;

/** Sends requests of every kind to a server, over raw connections, and compares each response with the oracle's. */
export async function fuzz({ cases, seed, program }: FuzzOptions): Promise<Fuzz> {
  const began = performance.now();
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server({ program }));
  const next = fuzzCases(randomFrom(seed));
  const ledger = makeLedger();
  const surprises: string[] = [];
  const counts: Record<string, number> = {};
  const taken: NewPlant[] = [];
  let left = cases;

  async function client(): Promise<void> {
    let connection: Connection | undefined;
    while (left-- > 0 && surprises.length < 10) {
      const fuzzCase = next();
      connection = connection === undefined || connection.isClosed() ? await connect(server.url) : connection;
      const said = await respondTo(connection, fuzzCase);
      counts[said] = (counts[said] ?? 0) + 1;
      remember(fuzzCase, said, ledger, taken);
      if (!isExpected(fuzzCase, said)) surprises.push(describe(fuzzCase, said));
      // After damaged HTTP nobody knows where on the connection the next request would begin.
      if (fuzzCase.expected === "any") connection.close("reset");
      if (fuzzCase.expected === "any" || said === "413/4131") connection = undefined;
    }
    connection?.close();
  }

  await Promise.all(Array.from({ length: CONNECTIONS }, client));
  for (const plant of taken) if (!ledger.hasRival(plant)) surprises.push(`409 without a rival: ${plant.id}`);
  server.child.kill("SIGTERM");
  const exitCode = await server.child.exited;
  if (exitCode !== 0) surprises.push(`The server ended with exit code ${exitCode}`);
  const size = `${cases} cases, ${ledger.acknowledgements()} acknowledged, ${JSON.stringify(counts)}`;
  return { experiment: "fuzz", size, verdict: ledger.judge(disk.database), began, surprises };
}

/** Status and number, "none" where the connection ends or, for damaged HTTP, nothing comes. */
async function respondTo(connection: Connection, { bytes, expected, plant }: FuzzCase): Promise<string> {
  const response = connection.request(bytes);
  const patience = expected === "any" ? Bun.sleep(TEST_TIMEOUT_MS).then(() => undefined) : response;
  const first = await Promise.race([response, patience]);
  if (first === undefined) return "none";
  // RFC 9112, section 2.2: Bun's own parser closes with a response that has no body.
  if (first.body === "") return `${first.status} without a body`;
  return verdictOf(first) + wrongEcho(first, plant);
}

function wrongEcho({ status, body }: WireResponse, plant: NewPlant | undefined): string {
  if (status !== 200 || plant === undefined) return "";
  const { name, tag } = plant;
  return Bun.deepEquals(JSON.parse(body), tag === undefined ? { name } : { name, tag }) ? "" : ` with ${body}`;
}

/**
 * Only what was answered 200 may be in the file; or what was not answered at all. A bodiless response is Bun's, to bytes
 * that followed the request, and the plant's own response was lost with the connection.
 */
function remember({ plant }: FuzzCase, said: string, ledger: Ledger, taken: NewPlant[]): void {
  if (plant === undefined) return;
  if (said === "200" || said === "none" || said.endsWith("without a body")) ledger.attempt(plant);
  if (said === "200") ledger.acknowledge(plant);
  if (said === "409/4091") taken.push(plant);
}

function isExpected({ expected, plant }: FuzzCase, said: string): boolean {
  if (expected !== "any") return said === expected || (expected === "200" && said === "409/4091");
  if (said.startsWith("200")) return said === "200" && plant !== undefined;
  // A request line that Bun cannot make sense of is a version that it does not know.
  return !said.startsWith("5") || said === "505 without a body";
}

function describe({ bytes, expected }: FuzzCase, said: string): string {
  return `expected ${expected}, answered ${said}: ${JSON.stringify(bytes.toString("latin1").slice(0, 2_000))}`;
}
