import { expect, setDefaultTimeout, test } from "bun:test";

import * as fc from "fast-check";

import type { Database } from "../../src/database/database.ts";
import { memoryDatabase } from "../../src/database/memory.ts";
import { MAX_IN_FLIGHT } from "../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl } from "../../src/database/postgres/url.ts";
import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { sqliteDatabase } from "../../src/database/sqlite/sqlite_database.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { fetchRequest, testApp, TOKEN } from "../support/app.ts";
import { printedSeed } from "../support/load.ts";
import { judgeBody, type WireRequest } from "../support/oracle.ts";
import { jsonOf } from "../support/plants.ts";
import { skipsCluster, startCluster } from "../support/postgres.ts";
import { openPostgres } from "../support/postgres_database.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../support/program.ts";
import { anyRequest } from "../support/requests.ts";
import { scaled } from "../support/scale.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const OPTIONS = { token: TOKEN, maxBodyBytes: 400 };

test("SQLite and memory give the same responses, byte for byte, and keep the same plants", async () => {
  using directory = emptyDirectory();
  await using database = sqliteDatabase(connect(directory.at("plants.db")));
  await expectSameBytes(database);
});

test.skipIf(skipsCluster())(
  "PostgreSQL and memory give the same responses, byte for byte, and keep the same plants",
  async () => {
    await using cluster = await startCluster();
    await using database = await openPostgres(parsePostgresUrl(await cluster.emptyDatabase()));
    await expectSameBytes(database, MAX_IN_FLIGHT);
  },
);

/** Expects that a database gives the responses of one in memory, byte for byte, and keeps the same plants. */
async function expectSameBytes(database: Database, maxInFlight = 1): Promise<void> {
  await using inMemory = memoryDatabase();
  const [expecting, serving] = [service(inMemory, 1), service(database, maxInFlight)];
  const seed = printedSeed("same bytes");
  const requests = fc.sample(anyRequest(OPTIONS), {
    numRuns: scaled(600, 12_000),
    seed: seed & 0x7fffffff,
  });
  const counts: Record<string, number> = {};

  for (const wave of wavesOf(requests)) {
    const [expected, responses] = await Promise.all([
      Promise.all(wave.map(expecting)),
      Promise.all(wave.map(serving)),
    ]);
    expect(responses).toEqual(expected);
    for (const { status } of expected) counts[status] = (counts[status] ?? 0) + 1;
  }

  const [expected, kept] = await Promise.all(
    [inMemory, database].map(async (one) =>
      (await Array.fromAsync(one.pages())).flat().map(jsonOf),
    ),
  );
  expect(kept).toEqual(expected);

  console.log(
    `same bytes: ${requests.length} requests, ${JSON.stringify(counts)}, ${expected?.length} plants`,
  );
  expect(Object.keys(counts)).toEqual(
    expect.arrayContaining(["200", "400", "401", "404", "405", "409", "413", "415"]),
  );
}

/** What one database's service responds: everything but what is different each time. */
function service({ plants }: Database, maxInFlight: number) {
  const commits = groupCommit(plants, { maxInFlight, timeoutMs: TEST_TIMEOUT_MS });
  const app = testApp({ plants: commits, maxBodyBytes: OPTIONS.maxBodyBytes });
  return async (request: WireRequest) => {
    const response = await app.fetch(fetchRequest(request));
    response.headers.delete("x-request-id");
    return { status: response.status, headers: [...response.headers], body: await response.text() };
  };
}

const WAVE = 64;

/**
 * Requests that are sent at once. Two plants with one id are not: which of them is first is not
 * ours to say.
 */
function* wavesOf(requests: readonly WireRequest[]): Generator<readonly WireRequest[]> {
  let wave: WireRequest[] = [];
  let ids = new Set<bigint>();

  for (const request of requests) {
    const plant = judgeBody(request.body);
    const id = "error" in plant ? undefined : plant.id;

    if (wave.length === WAVE || (id !== undefined && ids.has(id))) {
      yield wave;
      [wave, ids] = [[], new Set()];
    }

    wave.push(request);
    if (id !== undefined) ids.add(id);
  }

  yield wave;
}
