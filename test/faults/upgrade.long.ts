import { describe, expect, setDefaultTimeout, test } from "bun:test";

import { post, TOKEN } from "../support/client.ts";
import { mutant } from "../support/mutant.ts";
import { fern } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, LONG_TEST_TIMEOUT_MS, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** How many plants each server is sent in turn. */
const PLANTS = 20;

/** The old server goes on, starts again, and says what it leaves out. */
const UPGRADED = {
  before: PLANTS,
  both: { newer: PLANTS, old: PLANTS },
  restarted: { stored: PLANTS, leavesOut: true },
  after: PLANTS,
  lost: 0,
};

test("on a SQLite file, a server goes on while the next version adds to it, and starts again", async () => {
  using directory = emptyDirectory();
  const upgraded = await upgrade("sqlite", `file:${directory.at("plants.db")}`, false);
  expect(upgraded).toEqual(UPGRADED);
});

describe.skipIf(skipsCluster())("on PostgreSQL", () => {
  const cluster = withCluster();

  test("a server goes on while the next version adds to the database, and starts again", async () => {
    const { url } = await cluster().newDatabase();
    expect(await upgrade("postgres", url, true)).toEqual(UPGRADED);
  });
});

/** The next version: its migration adds a column to the plants. */
function nextVersion(adapter: string) {
  const file = `src/database/${adapter}/migrations.ts`;
  return mutant([
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
  ]);
}

/** What becomes of two versions on one database, upgraded while the old version serves. */
async function upgrade(adapter: string, database: string, migrate: boolean) {
  using next = nextVersion(adapter);
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

  await old.stop();
  const restarted = await startedAgain(env, acknowledged);
  const after = await acknowledged(newer.url);
  await newer.stop();
  const { stdout } = await runToEnd({ program, args: ["export"], env });

  return {
    before,
    both,
    restarted,
    after,
    lost:
      before + both.newer + both.old + restarted.stored + after - (stdout.split("\n").length - 1),
  };
}

/** Starts the old server again. */
async function startedAgain(
  env: Record<string, string>,
  acknowledged: (url: string) => Promise<number>,
) {
  await using server = await startServer({ env });
  const stored = await acknowledged(server.url);
  await server.stop();
  return {
    stored,
    leavesOut: /WARN.*additions of a newer.*"plants\.light"/.test(server.stderr.text()),
  };
}
