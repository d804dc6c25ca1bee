import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";

import type { NewToken } from "../../src/auth/token_store.ts";
import { adapterOf } from "../../src/database/databases.ts";
import { untilTokenIs } from "../support/client.ts";
import { damage, makeLargeDatabase } from "../support/damage.ts";
import { executable } from "../support/executable.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import {
  emptyDirectory,
  memoryDirectory,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
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
  token("shortened", 8),
  token("old name", 9),
  token("old name, leaked there", 10, { revokedAt: REVOKED }),
];
const NEW = [
  token("leaked here", 4, { revokedAt: REVOKED }),
  token("leaked there", 5),
  token("taken", 99),
  token("narrowed", 7, { scopes: ["metrics"] }),
  token("shortened", 8, { expiresAt: CREATED }),
  token("new name", 9, { revokedAt: REVOKED }),
  token("new name, leaked there", 10),
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
    revokedTokens: ["leaked there", "new name, leaked there"],
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
    shortened: { ...never, digest: 8, expiresAt: CREATED },
    "new name": { ...never, digest: 9, revokedAt: REVOKED },
    "new name, leaked there": { ...never, digest: 10, revokedAt: REVOKED },
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

test("a token's name moves no cursor, whoever made it", async () => {
  using home = emptyDirectory();
  await fill(home.at("old.db"), [token("a\n\u001b[2Jb", 1)]);
  const { stderr } = await importTokens(home.at("old.db"), home.at("new.db"));
  expect(stderr).toContain(String.raw`Tokens: 1 ("a\u{a}\u{1b}[2Jb") made valid`);
  const listed = await runCommand(["token", "list", "--database", home.at("new.db")], {});
  expect(listed.stdout.split("\n")[1]).toStartWith(String.raw`a\u{a}\u{1b}[2Jb  active `);
});

test("import without --tokens leaves the tokens as they are", async () => {
  using home = emptyDirectory();
  await fill(home.at("old.db"), OLD);
  const run = await runCommand(["import", home.at("old.db")], { DATABASE_URL: home.at("new.db") });
  expect(run).toMatchObject({ exitCode: 0 });
  expect(await tokensIn(home.at("new.db"))).toEqual({});
});

test("a running server accepts a token that was imported beside it, and refuses one that an import revoked", async () => {
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

  await runCommand(["token", "revoke", "greenhouse", "--database", home.at("old.db")], {});
  expect((await importTokens(home.at("old.db"), home.at("plants.db"))).stderr).toStartWith(
    'Tokens: 0 made valid, 1 ("greenhouse") revoked, 0 refused\n',
  );
  await untilTokenIs(401, server.url, made);
});

test.each([
  ["lines", 2, 'Cannot use --tokens with "lines": expected a database'],
  ["-", 2, 'Cannot use --tokens with "-": expected a database'],
  ["missing.db", 1, 'Cannot read "missing.db": no such file or directory'],
])("import %s --tokens exits with %d, and creates nothing", async (source, exitCode, line) => {
  using home = emptyDirectory();
  await Bun.write(home.at("lines"), `${jsonOf(fern())}\n`);
  const run = await runToEnd({ cwd: home.path, args: ["import", source, "--tokens"] });
  expect(run).toEqual({ exitCode, stdout: "", stderr: `${line}\n` });
  expect(await Bun.file(home.at("plants.db")).exists()).toBe(false);
});

test("import --tokens takes no token from where any user can replace the database", async () => {
  using home = emptyDirectory();
  using open = emptyDirectory();
  await fill(open.at("old.db"), OLD);
  chmodSync(open.path, 0o777);
  const { exitCode, stderr } = await importTokens(open.at("old.db"), home.at("new.db"));
  expect(exitCode).toBe(1);
  expect(stderr).toMatch(/^Cannot read the tokens of database ".*": other users can write to /);
  expect(await tokensIn(home.at("new.db"))).toEqual({});
});

test("import --tokens finds the tokens of a database whose index of tokens is corrupt", async () => {
  using home = emptyDirectory();
  makeLargeDatabase(home.at("old.db"), 10);
  damage(home.at("old.db"), "a damaged page of the index of tokens");
  const { exitCode } = await importTokens(home.at("old.db"), home.at("new.db"));
  expect(Object.keys(await tokensIn(home.at("new.db")))).toHaveLength(5);
  expect(exitCode).toBe(0);
});

/** Tokens that differ, by number; every other one is revoked. */
const many = (count: number) =>
  Array.from({ length: count }, (_, index) =>
    token(`token ${index}`, 0, {
      digest: Uint8Array.from(Bun.SHA256.hash(String(index)) as Uint8Array),
      revokedAt: index % 2 === 0 ? null : REVOKED,
    }),
  );

test.each<[damage: string, (page: Buffer) => void]>([
  ["a page of zeros", (page) => page.fill(0)],
  // SQLite reads a row with a header of zeros as NULL in every column, without an error.
  [
    "a row of NULLs",
    (page) => page.fill(0, page.indexOf("token 250") - 8, page.indexOf("token 250")),
  ],
])(
  "import --tokens of a table of tokens with %s says why it adds none, and adds the plants",
  async (_, damagePage) => {
    using home = emptyDirectory(memoryDirectory());
    const from = home.at("old.db");
    await fill(from, many(500));
    // A page in the middle of the table: the index has the names as well.
    const bytes = readFileSync(from);
    const pages = Array.from({ length: bytes.length / 4_096 }, (_, page) =>
      bytes.subarray(page * 4_096, (page + 1) * 4_096),
    );
    damagePage(
      pages.find((page) => page[0] === TABLE_LEAF && page.includes("token 250")) as Buffer,
    );
    writeFileSync(from, bytes);

    const { exitCode, stderr } = await importTokens(from, home.at("new.db"));
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/^Cannot read the tokens of database ".*": it is corrupt \(.*\)\n/);
    expect(stderr).toEndWith("1 added, 0 already there, 0 refused\n");
    expect(await tokensIn(home.at("new.db"))).toEqual({});
  },
);

/** https://www.sqlite.org/fileformat2.html#b_tree_pages */
const TABLE_LEAF = 13;

test("import --tokens that is stopped names the tokens that it has made valid", async () => {
  using home = emptyDirectory(memoryDirectory());
  const [from, to] = [home.at("from.db"), home.at("to.db")];
  await fill(
    from,
    Array.from({ length: 200 }, (_, index) => token(`token-${index}`, index)),
  );

  const stop = new AbortController();
  let stderr = "";
  const { exitCode } = await runCommand(
    ["import", from, "--tokens"],
    { DATABASE_URL: to },
    {
      stop: stop.signal,
      stderr(text) {
        stderr += text;
        // A moment later, it has added some tokens and not all.
        if (text.startsWith("Initialized")) setTimeout(() => stop.abort(), 0);
      },
    },
  );
  expect(exitCode).toBe(1);
  const added = Object.keys(await tokensIn(to)).length;
  expect(stderr).toMatch(
    new RegExp(String.raw`^Tokens: ${added}(?: \(.*\))? made valid, 0 revoked`, "m"),
  );
});

test("import --tokens that was killed, and then two at once, leave every token, and none valid that is revoked", async () => {
  using home = emptyDirectory(memoryDirectory());
  await fill(home.at("old.db"), many(3_000));
  await fill(home.at("plants.db"), []);
  const args = ["import", "old.db", "--tokens"];
  const killed = Bun.spawn([...executable(), ...args], { cwd: home.path, stderr: "ignore" });
  while (Object.keys(await tokensIn(home.at("plants.db"))).length < 10);
  killed.kill("SIGKILL");
  await killed.exited;
  expect(await tokensIn(home.at("old.db"))).toMatchObject(await tokensIn(home.at("plants.db")));

  const both = await Promise.all([1, 2].map(() => runToEnd({ cwd: home.path, args })));
  expect(both.map(({ exitCode }) => exitCode)).toEqual([0, 0]);
  expect(await tokensIn(home.at("plants.db"))).toEqual(await tokensIn(home.at("old.db")));
});
