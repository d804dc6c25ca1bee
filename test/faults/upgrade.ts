import { post, TOKEN } from "../support/client.ts";
import { mutant } from "../support/mutant.ts";
import { fern } from "../support/plants.ts";
import { runToEnd, startServer } from "../support/program.ts";

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

/** How many plants each server is sent in turn. */
const PLANTS = 20;

/** What becomes of two versions on one database, upgraded while the old version serves. */
export async function upgrade(adapter: string, database: string, migrate: boolean) {
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
  return { stored, leavesOut: /WARN.*leaves out.*"plants\.light"/.test(server.stderr.text()) };
}

/** The old server goes on, starts again, and says what it leaves out. */
export const UPGRADED = {
  before: PLANTS,
  both: { newer: PLANTS, old: PLANTS },
  restarted: { stored: PLANTS, leavesOut: true },
  after: PLANTS,
  lost: 0,
};
