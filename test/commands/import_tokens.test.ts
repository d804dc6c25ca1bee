import { describe, expect, setDefaultTimeout, test } from "bun:test";

import type { NewToken } from "../../src/auth/token_store.ts";
import { adapterOf } from "../../src/database/databases.ts";
import { untilTokenIs } from "../support/client.ts";
import { damage, makeLargeDatabase } from "../support/damage.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const CREATED = new Date("2026-11-01T10:00:00.000Z");
const REVOKED = new Date("2026-11-02T10:00:00.000Z");

/** A token whose digest is made of a number: the same number is the same token. */
function token(name: string, digest: number, more: Partial<NewToken> = {}): NewToken {
  return {
    name,
    digest: new Uint8Array(32).fill(digest),
    createdAt: CREATED,
    expiresAt: null,
    scopes: ["write"],
    ...more,
  };
}

async function fill(url: string, tokens: readonly NewToken[]): Promise<void> {
  await using database = await adapterOf(url).openForWriting({ create: true });
  await database.plants.add([fern()], { timeoutMs: TEST_TIMEOUT_MS });
  for (const each of tokens) expect(await database.tokens.add(each)).toBe(true);
}

async function tokensIn(url: string): Promise<Record<string, unknown>> {
  await using database = await adapterOf(url).openForListing();
  const tokens = await database.tokens.list();
  return Object.fromEntries(
    tokens.map(({ name, digest, revokedAt, scopes, expiresAt }) => [
      name,
      { digest: digest[0], revokedAt, scopes, expiresAt },
    ]),
  );
}

const importTokens = (from: string, to: string, ...flags: string[]) =>
  runCommand(["import", from, "--tokens", ...flags], { DATABASE_URL: to });

const OLD = [
  token("phone", 1, { scopes: ["metrics"], expiresAt: new Date("2999-01-01T00:00:00.000Z") }),
  token("ended", 2, { expiresAt: CREATED }),
  token("leaked", 3, { revokedAt: REVOKED }),
  token("leaked here", 4),
  token("leaked there", 5, { revokedAt: REVOKED }),
  token("taken", 6),
  token("narrowed", 7, { scopes: ["write", "metrics"] }),
];
const NEW = [
  token("leaked here", 4, { revokedAt: REVOKED }),
  token("leaked there", 5),
  token("taken", 99),
  token("narrowed", 7, { scopes: ["metrics"] }),
];

/** Imports the old database into the new one, twice. */
async function importsTokens(from: string, to: string): Promise<void> {
  await fill(from, OLD);
  await fill(to, NEW);

  const first = await importTokens(from, to, "--json");
  expect(first).toMatchObject({ exitCode: 1 });
  expect(first.stderr).toContain('token "taken": the name belongs to another token\n');
  expect(JSON.parse(first.stdout)).toMatchObject({
    present: 1,
    validTokens: ["phone"],
    revokedTokens: ["leaked there"],
    refusedTokens: ["taken"],
  });

  const kept = await tokensIn(to);
  const never = { revokedAt: null, expiresAt: null, scopes: ["write"] };
  expect(kept).toEqual({
    phone: {
      digest: 1,
      revokedAt: null,
      scopes: ["metrics"],
      expiresAt: new Date("2999-01-01T00:00:00.000Z"),
    },
    ended: { ...never, digest: 2, expiresAt: CREATED },
    leaked: { ...never, digest: 3, revokedAt: REVOKED },
    "leaked here": { ...never, digest: 4, revokedAt: REVOKED },
    "leaked there": { ...never, digest: 5, revokedAt: REVOKED },
    taken: { ...never, digest: 99 },
    narrowed: { ...never, digest: 7, scopes: ["metrics"] },
  });

  const second = JSON.parse((await importTokens(from, to, "--json")).stdout);
  expect(second).toMatchObject({ validTokens: [], revokedTokens: [], refusedTokens: ["taken"] });
  expect(await tokensIn(to)).toEqual(kept);
}

test("import --tokens adds the tokens of a SQLite database, and what is revoked in either is revoked", async () => {
  using home = emptyDirectory();
  await importsTokens(home.at("old.db"), home.at("new.db"));
});

describe.skipIf(skipsCluster())("with PostgreSQL", () => {
  const cluster = withCluster();

  test("import --tokens adds the tokens of a SQLite database to PostgreSQL", async () => {
    using home = emptyDirectory();
    await importsTokens(home.at("old.db"), (await cluster().newDatabase()).url);
  });

  test("import --tokens adds the tokens of PostgreSQL to a SQLite database", async () => {
    using home = emptyDirectory();
    await importsTokens((await cluster().newDatabase()).url, home.at("new.db"));
  });
});

test("import without --tokens leaves the tokens as they are", async () => {
  using home = emptyDirectory();
  await fill(home.at("old.db"), OLD);
  const run = await runCommand(["import", home.at("old.db")], { DATABASE_URL: home.at("new.db") });
  expect(run).toMatchObject({ exitCode: 0 });
  expect(await tokensIn(home.at("new.db"))).toEqual({});
});

test("a running server accepts a token that was imported beside it", async () => {
  using home = emptyDirectory();
  const create = ["token", "create", "greenhouse", "--database", home.at("old.db")];
  const made = (await runCommand(create, {})).stdout.trim();
  await using server = await startServer({ cwd: home.path });

  const { exitCode, stderr } = await importTokens(home.at("old.db"), home.at("plants.db"));
  expect({ exitCode, stderr }).toEqual({
    exitCode: 0,
    stderr:
      'Tokens: 1 ("greenhouse") made valid, 0 revoked, 0 refused\n0 added, 0 already there, 0 refused\n',
  });
  await untilTokenIs(200, server.url, made);
});

test.each(["lines", "-"])(
  "import %s --tokens is a usage error, and creates nothing",
  async (from) => {
    using home = emptyDirectory();
    await Bun.write(home.at("lines"), `${jsonOf(fern())}\n`);
    const source = from === "-" ? from : home.at(from);
    expect(await importTokens(source, home.at("new.db"))).toEqual({
      exitCode: 2,
      stdout: "",
      stderr: `Cannot use --tokens with "${source}": expected a database\n`,
    });
    expect(await Bun.file(home.at("new.db")).exists()).toBe(false);
  },
);

test("import --tokens finds the tokens of a database whose index of tokens is corrupt", async () => {
  using home = emptyDirectory();
  makeLargeDatabase(home.at("old.db"), 10);
  damage(home.at("old.db"), "a damaged page of the index of tokens");
  const { exitCode } = await importTokens(home.at("old.db"), home.at("new.db"));
  expect(Object.keys(await tokensIn(home.at("new.db")))).toHaveLength(5);
  expect(exitCode).toBe(0);
});
