import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";

import { post, TOKEN } from "../support/client.ts";
import { mutant } from "../support/mutant.ts";
import { fern } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, LONG_TEST_TIMEOUT_MS, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** The next version: its migration adds a column to the plants. */
const NEXT = ["sqlite", "postgres"].flatMap((database) => {
  const file = `src/database/${database}/migrations.ts`;
  return [
    {
      file,
      from: "journal.entries.map(",
      to: '[...journal.entries, { tag: "next", when: 9e12 }].map(',
    },
    {
      file,
      from: "sql: SQL[tag] as string",
      to: 'sql: SQL[tag] ?? "ALTER TABLE plants ADD light text;"',
    },
  ];
});

let next: ReturnType<typeof mutant>;
beforeAll(() => void (next = mutant(NEXT)));
afterAll(() => next[Symbol.dispose]());

/** How many plants each server is sent in turn. */
const PLANTS = 20;

/** What becomes of two versions on one database, upgraded while the old version serves. */
async function upgrade(database: string, migrate: boolean) {
  const env = { AUTH_TOKENS: TOKEN, DATABASE_URL: database };
  const { program } = next;
  let id = 0;

  /** How many new plants a server acknowledges. */
  async function acknowledged(url: string): Promise<number> {
    const plants = Array.from({ length: PLANTS }, () => fern({ id: ++id }));
    const responses = await Promise.all(plants.map((plant) => post(url, plant)));
    return responses.filter(({ ok }) => ok).length;
  }

  await using old = await startServer({ env });
  const before = await acknowledged(old.url);
  if (migrate) await runToEnd({ program, args: ["migrate"], env });

  await using newer = await startServer({ env, program });
  const both = { newer: await acknowledged(newer.url), old: await acknowledged(old.url) };

  const restarted = await runToEnd({ env, args: ["--port", "0"] });
  await old.stop();
  const after = await acknowledged(newer.url);
  await newer.stop();
  const { stdout } = await runToEnd({ program, args: ["export"], env });

  return {
    before,
    both,
    restarted: /made by a newer plant-store/.test(restarted.stderr) && restarted.exitCode,
    after,
    lost: before + both.newer + both.old + after - (stdout.split("\n").length - 1),
  };
}

/** The old server goes on, and is refused once it starts again. */
const UPGRADED = {
  before: PLANTS,
  both: { newer: PLANTS, old: PLANTS },
  restarted: 1,
  after: PLANTS,
  lost: 0,
};

test("on a SQLite file, a server goes on while the next version migrates it, and cannot start again", async () => {
  using directory = emptyDirectory();
  expect(await upgrade(`file:${directory.at("plants.db")}`, false)).toEqual(UPGRADED);
});

describe.skipIf(skipsCluster())("on PostgreSQL", () => {
  const cluster = withCluster();

  test("a server goes on while the next version migrates the database, and cannot start again", async () => {
    const { url } = await cluster().newDatabase();
    expect(await upgrade(url, true)).toEqual(UPGRADED);
  });
});
