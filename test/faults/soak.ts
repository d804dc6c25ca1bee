import { readdirSync, readFileSync, statSync } from "node:fs";
import type { NewPlant } from "../../src/plant/plant.ts";
import { jwksServer, signed, signingKey } from "../support/jwks.ts";
import { makeLedger, type Ledger, type Report } from "../support/ledger.ts";
import { type Connection, connect, postBytes, randomFrom, randomPlants } from "../support/load.ts";
import { exitCodeOf, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { seenOf, type SoakKind, soakKinds, storeOne } from "./soak_load.ts";

/** How to soak a server. */
export interface SoakOptions {
  /** How long it is measured, in seconds, after a warm-up of a tenth. */
  readonly seconds: number;
  readonly seed: number;
}

/** What a server was like for a tenth of the time. */
export interface SoakWindow {
  /** Resident, in MiB, on the average. */
  readonly memory: number;
  /** Open, on the average. */
  readonly descriptors: number;
  /** In MiB, at most. */
  readonly wal: number;
  /** Of the good clients' requests, in milliseconds. */
  readonly p50: number;
  readonly p99: number;
  /** Acknowledged to the good clients, a second. */
  readonly plants: number;
}

/** How it went. */
export interface Soak extends Report {
  readonly first: SoakWindow;
  readonly last: SoakWindow;
  /** Open descriptors of the idle server, before the load and once all of it is gone. */
  readonly descriptors: { readonly before: number; readonly after: number };
  /** How often each kind of client saw what. */
  readonly seen: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** What it may not have seen. */
  readonly unexpected: readonly string[];
  /** Of the good clients' requests, the share that got a 503: a busy moment may refuse a few. */
  readonly refusedShare: number;
}

/** How many good clients send plants as fast as they can. */
const GOOD_CLIENTS = 64;
const GOOD = "a good plant";
/** How long the server has to close what clients left open, in milliseconds: its idle timeout, and some more. */
const CLOSE_MS = 45_000;
/** How many descriptors a server may have more after the load: such as its connections to the identity provider. */
export const DESCRIPTOR_BOUND = 4;

/** Loads a server with good, bad and hostile clients at once, and compares its last tenth with its first. */
export async function soak({ seconds, seed }: SoakOptions): Promise<Soak> {
  const began = performance.now();
  const key = await signingKey("EdDSA");
  await using provider = jwksServer(key);
  using disk = makeDisk({ shim: false });
  const env = { REQUEST_TIMEOUT_MS: "5000", AUTH_JWKS_URL: provider.url.href, ...JWT_SETTINGS };
  await using server = await startServer(disk.server({ env }));
  const { pid } = server.child;
  const [random, ledger, tally] = [randomFrom(seed), makeLedger(), makeTally()];
  const next = randomPlants(random, { again: 0.2 });
  const jwt = (kind: "good" | "forged") => newJwt(key, kind);
  const before = descriptorsOf(pid);

  let isOver = false;
  const kinds = Object.entries(soakKinds({ url: server.url, ledger, next, random, jwt }));
  const hostile = kinds.flatMap(([name, kind]) =>
    Array.from({ length: kind.clients }, () => repeat(name, kind, tally, () => isOver)),
  );
  const latencies = makeLatencies();
  const good = Array.from({ length: GOOD_CLIENTS }, () =>
    goodClient(server.url, { ledger, next, tally, latencies, isOver: () => isOver }),
  );
  const watch = () => watched(pid, `${disk.database}-wal`, latencies, seconds * 100);
  await Bun.sleep(seconds * 100);
  const first = await watch();
  await Bun.sleep(seconds * 800);
  const last = await watch();
  isOver = true;
  await Promise.all([...hostile, ...good]);

  const after = await descriptorsWithin(pid, before + DESCRIPTOR_BOUND, CLOSE_MS);
  server.child.kill("SIGTERM");
  const exitCode = await exitCodeOf(server.child);
  if (exitCode !== 0) tally.unexpected.push(`The server ended with exit code ${exitCode}`);
  const size = `${seconds} s, ${ledger.attempts()} sent, ${ledger.acknowledgements()} acknowledged`;
  const verdict = ledger.judge(disk.database);
  const descriptors = { before, after };
  return { experiment: "soak", size, verdict, began, first, last, descriptors, ...tally.result() };
}

const JWT_SETTINGS = { AUTH_ISSUER: "https://id.example.com/", AUTH_AUDIENCE: "plant-store" };

async function newJwt(key: Parameters<typeof signed>[0], kind: "good" | "forged"): Promise<string> {
  const exp = Math.floor(Date.now() / 1_000) + 600;
  const claims = { iss: JWT_SETTINGS.AUTH_ISSUER, aud: JWT_SETTINGS.AUTH_AUDIENCE, exp, jti: crypto.randomUUID() };
  if (kind === "good") return signed(key, claims);
  const [header, body] = (await signed(key, claims)).split(".");
  return `${header}.${body}.${crypto.getRandomValues(new Uint8Array(64)).toBase64({ alphabet: "base64url", omitPadding: true })}`;
}

/** Counts what clients see. */
function makeTally() {
  const seen: Record<string, Record<string, number>> = {};
  const unexpected: string[] = [];
  return {
    unexpected,
    count(name: string, verdict: string, expected: RegExp): void {
      const counts = (seen[name] ??= {});
      counts[verdict] = (counts[verdict] ?? 0) + 1;
      if (!expected.test(verdict) && !verdict.startsWith("503/")) unexpected.push(`${name}: ${verdict}`);
    },
    result: () => ({ seen, unexpected, refusedShare: refusedShareOf(seen[GOOD] ?? {}) }),
  };
}

function refusedShareOf(counts: Readonly<Record<string, number>>): number {
  const sum = (entries: [verdict: string, count: number][]) => entries.reduce((total, [, count]) => total + count, 0);
  const all = Object.entries(counts);
  return sum(all.filter(([verdict]) => verdict.startsWith("503/"))) / sum(all);
}

type Tally = ReturnType<typeof makeTally>;

/** The latencies of a window, or none outside of one. */
function makeLatencies() {
  let window: number[] | undefined;
  return {
    add: (milliseconds: number) => void window?.push(milliseconds),
    /** Forgets what was before. */
    begin: () => void (window = []),
    end(): number[] {
      const sorted = (window ?? []).toSorted((one, other) => one - other);
      window = undefined;
      return sorted;
    },
  };
}

async function repeat(name: string, kind: SoakKind, tally: Tally, isOver: () => boolean): Promise<void> {
  while (!isOver()) {
    const seen = await kind.once().catch((error: unknown) => String(error));
    tally.count(name, seen, kind.expected);
    await Bun.sleep(kind.pauseMs);
  }
}

interface GoodClientOptions {
  readonly ledger: Ledger;
  readonly next: () => NewPlant;
  readonly tally: Tally;
  readonly latencies: ReturnType<typeof makeLatencies>;
  readonly isOver: () => boolean;
}

/** Keeps its connection, and sends the next plant as soon as the one before has its response. */
async function goodClient(url: string, { ledger, next, tally, latencies, isOver }: GoodClientOptions): Promise<void> {
  let connection: Connection = await connect(url);
  while (!isOver()) {
    if (connection.isClosed()) connection = await connect(url);
    const began = performance.now();
    const seen = await storeOne(ledger, next(), (plant) => seenOf(connection.request(postBytes(plant))));
    if (seen === "200") latencies.add(performance.now() - began);
    tally.count(GOOD, seen, /^(?:200|409\/4091)$/);
  }
  connection.close();
}

/** Looks at a server once a second for some milliseconds. */
async function watched(
  pid: number,
  wal: string,
  latencies: ReturnType<typeof makeLatencies>,
  milliseconds: number,
): Promise<SoakWindow> {
  const samples: { memory: number; descriptors: number; wal: number }[] = [];
  const began = performance.now();
  latencies.begin();
  while (performance.now() - began < milliseconds) {
    const walBytes = statSync(wal, { throwIfNoEntry: false })?.size ?? 0;
    samples.push({ memory: memoryOf(pid), descriptors: descriptorsOf(pid), wal: walBytes / 2 ** 20 });
    await Bun.sleep(Math.min(1_000, milliseconds / 10));
  }
  const seconds = (performance.now() - began) / 1_000;
  const sorted = latencies.end();
  const mean = (of: "memory" | "descriptors") => samples.reduce((sum, sample) => sum + sample[of], 0) / samples.length;
  return {
    memory: mean("memory"),
    descriptors: mean("descriptors"),
    wal: Math.max(...samples.map((sample) => sample.wal)),
    p50: sorted[Math.floor(sorted.length * 0.5)] ?? NaN,
    p99: sorted[Math.floor(sorted.length * 0.99)] ?? NaN,
    plants: sorted.length / seconds,
  };
}

/** What a process holds, in MiB. */
function memoryOf(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1_024;
}

function descriptorsOf(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/** How many are open once there are no more than the bound, or at the end of the time. */
async function descriptorsWithin(pid: number, bound: number, milliseconds: number): Promise<number> {
  const limit = performance.now() + milliseconds;
  while (descriptorsOf(pid) > bound && performance.now() < limit) await Bun.sleep(500);
  return descriptorsOf(pid);
}
