import { beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { INTACT, type Ledger, makeLedger } from "../support/ledger.ts";
import { connect, newPlants, postBytes, startLoad } from "../support/load.ts";
import { fern, insertOf } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { LONG_TEST_TIMEOUT_MS, startServer } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { get } from "./health.ts";
import { judge } from "./postgres.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** How long each part of the experiment takes, in milliseconds. */
const PART_MS = 6_000;

/**
 * The ids that a stranger's transaction holds, how it holds them, and the share of the others' rate
 * that must be left.
 */
const HELD: readonly (readonly [how: "inserted" | "deleted", ids: number, share: number])[] = [
  ["deleted", 1, 1 / 2],
  ["inserted", 100, 1 / 5],
];

describe.skipIf(skipsCluster())("beside rows that a stranger's transaction holds", () => {
  let url: string;
  const settings = { log_min_messages: "error", logging_collector: "on", log_directory: "log" };
  const cluster = withCluster({ settings, timeoutMs: LONG_TEST_TIMEOUT_MS });
  beforeEach(async () => void (url = await cluster().emptyDatabase()));

  /** How many errors PostgreSQL has logged. */
  function errors(): number {
    const directory = join(cluster().data, "log");
    const logs = readdirSync(directory).map((name) =>
      readFileSync(join(directory, name), "latin1"),
    );
    return logs.join("").split(" ERROR: ").length - 1;
  }

  test.each(HELD)(
    "%s %i, sent again at once: all others are stored, and then these",
    async (how, count, share) => {
      const env = { DATABASE_URL: url, AUTH_TOKENS: TOKEN };
      await using server = await startServer({ env });
      await using stranger = cluster().connect();
      const held = range(1, count).map((id): NewPlant => fern({ id }));
      const insert = insertOf(...held);
      if (how === "deleted") await cluster().run(insert);

      const ledger = makeLedger();
      const next = newPlants(`${count} ${how}`);
      const others = startLoad({ url: server.url, connections: 32, ledger, next, endOn: [] });
      await Bun.sleep(1_000);
      const alone = await part(ledger);

      const remove = `DELETE FROM plants WHERE id BETWEEN 1 AND ${count}`;
      await stranger.unsafe(`BEGIN; ${how === "inserted" ? insert : remove}`).simple();
      const errorsBefore = errors();
      const sending = held.map((plant) => sendUntilStored(server.url, plant));
      const readiness = watchReadiness(server.url);
      const beside = await part(ledger);
      const errorsPerSecond = Math.round(((errors() - errorsBefore) / PART_MS) * 1_000);
      const notReady = await readiness.stop();

      const ended = performance.now();
      await stranger.unsafe("ROLLBACK");
      const stored = await Promise.all(sending);
      const storedAfterMs = Math.round(Math.max(...stored.map(({ at }) => at)) - ended);
      const report = await others.stop();

      const figures = {
        alone: alone.stored,
        beside: beside.stored,
        gapMs: Math.round(beside.gapMs),
        notReady,
        errorsPerSecond,
        heldRefused: stored.reduce((sum, { refused }) => sum + refused, 0),
        storedAfterMs,
      };

      console.log(`${count} ${how}: ${JSON.stringify(figures)}`);

      for (const plant of held) {
        ledger.attempt(plant);
        ledger.acknowledge(plant);
      }

      expect(report).toEqual({
        responses: { "200": expect.any(Number) },
        unanswered: 0,
        wrong: 0,
      });
      expect(await judge(url, ledger)).toEqual(INTACT);

      // A machine that runs other programs too is allowed twice the time, and half the rate.
      expect(notReady).toEqual([]);
      expect(figures.gapMs).toBeLessThan(2_000);
      expect(figures.beside).toBeGreaterThan((figures.alone * share) / 2);
      // The first meeting is among them, with one or two for each id.
      expect(figures.errorsPerSecond).toBeLessThan(60);
      expect(figures.storedAfterMs).toBeLessThan(6_000);
    },
  );
});

/**
 * How many plants are acknowledged from now on, and the longest time in which none is, in
 * milliseconds.
 */
async function part({ acknowledgements }: Ledger) {
  const before = acknowledgements();
  const end = performance.now() + PART_MS;
  let last = { stored: before, at: performance.now() };
  let gapMs = 0;

  while (performance.now() < end) {
    await Bun.sleep(5);
    gapMs = Math.max(gapMs, performance.now() - last.at);
    const stored = acknowledgements();
    if (stored > last.stored) last = { stored, at: performance.now() };
  }
  return { stored: last.stored - before, gapMs };
}

/** A client that sends its plant again at once, until it is stored. */
async function sendUntilStored(url: string, plant: NewPlant) {
  const connection = await connect(url);
  for (let refused = 0; ; refused++) {
    const response = await connection.request(postBytes(plant));
    if (response === undefined) throw new Error("the connection ended");
    if (response.status !== 200) continue;
    connection.close();
    return { at: performance.now(), refused };
  }
}

/** Asks for `/readyz` again and again. Resolves to every verdict that was not 200. */
function watchReadiness(url: string) {
  const end = new AbortController();
  async function watch(): Promise<string[]> {
    const verdicts: string[] = [];
    while (!end.signal.aborted) {
      verdicts.push(await get(url, "/readyz"));
      await Bun.sleep(100);
    }
    return verdicts.filter((verdict) => verdict !== "200");
  }

  const watching = watch();
  return {
    stop(): Promise<string[]> {
      end.abort();
      return watching;
    },
  };
}
