import { beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { INTACT, makeLedger } from "../support/ledger.ts";
import { connect, type Connection, newPlants, postBytes } from "../support/load.ts";
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

      const others = await startOthers(server.url, newPlants(`${count} ${how}`));
      await Bun.sleep(1_000);
      const alone = await others.part();

      const remove = `DELETE FROM plants WHERE id BETWEEN 1 AND ${count}`;
      await stranger.unsafe(`BEGIN; ${how === "inserted" ? insert : remove}`).simple();
      const errorsBefore = errors();
      const sending = held.map((plant) => sendUntilStored(server.url, plant));
      const readiness = watchReadiness(server.url);
      const beside = await others.part();
      const errorsPerSecond = Math.round(((errors() - errorsBefore) / PART_MS) * 1_000);
      const notReady = await readiness.stop();

      const ended = performance.now();
      await stranger.unsafe("ROLLBACK");
      const stored = await Promise.all(sending);
      const storedAfterMs = Math.round(Math.max(...stored.map(({ at }) => at)) - ended);
      await others.stop();

      const figures = {
        alone: alone.stored,
        beside: beside.stored,
        gapMs: Math.round(beside.gapMs),
        refused: alone.refused + beside.refused,
        notReady,
        errorsPerSecond,
        heldRefused: stored.reduce((sum, { refused }) => sum + refused, 0),
        storedAfterMs,
      };

      console.log(`${count} ${how}: ${JSON.stringify(figures)}`);

      for (const plant of held) {
        others.ledger.attempt(plant);
        others.ledger.acknowledge(plant);
      }

      expect(await judge(url, others.ledger)).toEqual(INTACT);

      // A machine that runs other programs too is allowed twice the time, and half the rate.
      expect(figures).toMatchObject({ refused: 0, notReady: [] });
      expect(figures.gapMs).toBeLessThan(2_000);
      expect(figures.beside).toBeGreaterThan((figures.alone * share) / 2);
      // The first meeting is among them, with one or two for each id.
      expect(figures.errorsPerSecond).toBeLessThan(60);
      expect(figures.storedAfterMs).toBeLessThan(6_000);
    },
  );
});

/** 32 clients that each send the next plant as soon as the one before is stored. */
async function startOthers(url: string, next: () => NewPlant) {
  const ledger = makeLedger();
  const end = new AbortController();
  let counts = { stored: 0, refused: 0, gapMs: 0 };
  let lastAt = performance.now();

  function stored(plant: NewPlant): void {
    ledger.acknowledge(plant);
    const now = performance.now();
    counts.stored++;
    counts.gapMs = Math.max(counts.gapMs, now - lastAt);
    lastAt = now;
  }

  async function client(connection: Connection): Promise<void> {
    while (!end.signal.aborted) {
      const plant = next();
      ledger.attempt(plant);
      const response = await connection.request(postBytes(plant));
      if (response === undefined) throw new Error("the connection ended");
      if (response.status !== 200) counts.refused++;
      else stored(plant);
    }

    connection.close();
  }

  const connections = await Promise.all(range(1, 32).map(() => connect(url)));
  const ended = Promise.all(connections.map(client));

  return {
    ledger,
    /**
     * How many are stored and refused from now on, and the longest time in which none is stored, in
     * milliseconds.
     */
    async part() {
      counts = { stored: 0, refused: 0, gapMs: 0 };
      lastAt = performance.now();
      await Bun.sleep(PART_MS);
      return { ...counts, gapMs: Math.max(counts.gapMs, performance.now() - lastAt) };
    },

    async stop(): Promise<void> {
      end.abort();
      await ended;
    },
  };
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
