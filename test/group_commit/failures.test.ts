/**
 * The README's "Guarantees by failure" in milliseconds: what the client sees, what became of the
 * plant, and what readiness says. The exit code after a failed fsync is that of a process:
 * `test/faults/sync_errors.long.ts`.
 */
import { expect, test } from "bun:test";

import { memoryDatabase } from "../../src/database/memory.ts";
import { PlantStoreError } from "../../src/errors.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import type { PlantStore } from "../../src/group_commit/plant_store.ts";
import { readiness } from "../../src/http/health.ts";
import { postPlant, testApp } from "../support/app.ts";
import { fern, ivy, moss, returned } from "../support/plants.ts";
import { readError, readPlant } from "../support/responses.ts";

const FERN = fern();
const OTHER = ivy();

const REFUSED = "storage is unavailable; send the plant again later";
const LATE = "storage did not finish in time; the plant may or may not be stored, send it again";

/** What a store does to a batch and to a probe, until it is mended. */
type Fault =
  /** Fails before anything is stored, as on a full disk. */
  | "fails before"
  /** Stores, and then fails, as if the reply of a database were lost. */
  | "fails after the commit"
  /** Never returns; nothing is stored. */
  | "hangs before"
  /** Stores, and never returns. */
  | "hangs after the commit";

/** A store with a {@linkcode Fault} over another store. `mend` ends the fault for later calls. */
function faultyStore(store: PlantStore, fault: Fault): PlantStore & { mend(): void } {
  let isFaulty = true;

  async function run<Result>(call: () => Promise<Result>): Promise<Result> {
    if (!isFaulty) return await call();
    if (fault.endsWith("after the commit")) await call();
    if (fault.startsWith("hangs")) return await new Promise<Result>(() => {});
    throw new PlantStoreError("storage_unavailable");
  }

  return {
    add: (plants, options) => run(() => store.add(plants, options)),
    probe: () => run(() => store.probe()),
    mend: () => void (isFaulty = false),
  };
}

interface Failure {
  readonly fault: Fault;
  readonly message: string;
  /** Whether the plant is stored when its client gets 503. */
  readonly stored: boolean;
}

const FAILURES: readonly Failure[] = [
  { fault: "fails before", message: REFUSED, stored: false },
  { fault: "fails after the commit", message: REFUSED, stored: true },
  { fault: "hangs before", message: LATE, stored: false },
  { fault: "hangs after the commit", message: LATE, stored: true },
];

test.concurrent.each(FAILURES)(
  "a store that $fault returns 503, is not ready, and a retry settles it",
  async ({ fault, message, stored }) => {
    const database = memoryDatabase();
    const store = faultyStore(database.plants, fault);
    // More than one in flight: a batch that hangs keeps its connection. The time is long enough for
    // the retry on a busy machine.
    const app = testApp({
      plants: groupCommit(store, { timeoutMs: 1_000, maxInFlight: 2 }),
      ready: readiness(() => store.probe(), { timeoutMs: 20, maxAgeMs: 0 }),
    });
    const isReady = () => app.fetch(new Request("http://localhost:3000/readyz"));

    const refusal = await readError(await app.fetch(postPlant(FERN)));
    expect(refusal).toEqual({ status: 503, error: 5032, message });
    expect(await readError(await isReady())).toMatchObject({ status: 503, error: 5032 });
    const before = await Array.fromAsync(database.pages());
    expect(before.flat()).toEqual(stored ? [fern()] : []);

    store.mend();
    const retry = await readPlant(await app.fetch(postPlant(FERN)));
    expect(retry).toEqual({ status: 200, body: returned(fern()) });
    expect(await readError(await app.fetch(postPlant(OTHER)))).toMatchObject({ error: 4091 });
    const after = await Array.fromAsync(database.pages());
    expect(after.flat()).toEqual([fern()]);
  },
);

test("a plant beyond a full queue returns 503 at once, and is not stored", async () => {
  const database = memoryDatabase();
  const store = faultyStore(database.plants, "hangs before");
  const app = testApp({ plants: groupCommit(store, { timeoutMs: 20, queueLimit: 1 }) });

  const first = app.fetch(postPlant(FERN));
  const second = await readError(await app.fetch(postPlant(moss({ id: 2n }))));

  expect(second).toMatchObject({ status: 503, error: 5031 });
  await first;
  expect(await Array.fromAsync(database.pages())).toEqual([]);
});
