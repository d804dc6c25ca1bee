import { beforeEach, describe, expect, test } from "bun:test";
import { readdirSync, writeFileSync } from "node:fs";

import type { TokenRecord } from "../../src/auth/token_store.ts";
import { adapterOf } from "../../src/database/databases.ts";
import { openSnapshot } from "../../src/database/postgres/backup.ts";
import { parsePostgresUrl } from "../../src/database/postgres/url.ts";
import { HOSTILE_PLANTS } from "../support/database_fixture.ts";
import { fern, insertOf, jsonOf } from "../support/plants.ts";
import { positionOf, skipsCluster, startCluster, untilReplayed } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { exported, runCommand } from "../support/stream_io.ts";

const ALL = HOSTILE_PLANTS.map((plant) => `${jsonOf(plant)}\n`).join("");
const TIME = new Date("2026-11-29T10:20:30.456Z");
const TOKENS: readonly TokenRecord[] = ["phone", 'Tom\'s \\ "token" 🌱', "lost"].map(
  (name, index) => ({
    name,
    digest: new Uint8Array(32).fill(index + 1),
    createdAt: new Date(TIME.getTime() + index),
    expiresAt: index === 1 ? new Date("2100-01-01T00:00:00.001Z") : null,
    revokedAt: index === 2 ? TIME : null,
    lastUsedAt: index === 1 ? TIME : null,
    scopes: index === 0 ? [] : ["write", "metrics"],
  }),
);

/** Runs a command on a database, and gives its exit code and the first line that it prints. */
async function call(url: string, args: readonly string[], stop = new AbortController().signal) {
  const { exitCode, stderr } = await runCommand(args, { DATABASE_URL: url }, { stop });
  return { exitCode, line: stderr.split("\n")[0] };
}

/** Stores {@linkcode HOSTILE_PLANTS} and {@linkcode TOKENS}. */
async function fill(url: string): Promise<void> {
  await using database = await adapterOf(url).openForWriting({ create: true });
  await database.plants.add(HOSTILE_PLANTS, { timeoutMs: TEST_TIMEOUT_MS });
  for (const { revokedAt, lastUsedAt, ...token } of TOKENS) {
    await database.tokens.add(token);
    if (revokedAt !== null) await database.tokens.revoke(token.name, revokedAt);
    if (lastUsedAt !== null) await database.tokens.recordUses([{ name: token.name, at: TIME }]);
  }
}

async function tokensOf(url: string): Promise<readonly TokenRecord[]> {
  await using database = await adapterOf(url).openForListing();
  return await database.tokens.list();
}

describe.skipIf(skipsCluster())("on PostgreSQL", () => {
  const cluster = withCluster();
  let directory: ReturnType<typeof emptyDirectory>;
  let saved: string;
  beforeEach(() => {
    directory = emptyDirectory();
    saved = directory.at("saved.db");
  });

  const newDatabase = async () => (await cluster().newDatabase()).url;
  const file = (name: string) => `file:${directory.at(name)}`;

  test.each([
    ["PostgreSQL", "PostgreSQL"],
    ["PostgreSQL", "SQLite"],
    ["SQLite", "PostgreSQL"],
  ])("a backup of %s, restored into %s, has every plant and token as it was", async (from, to) => {
    const urlOf = (kind: string, name: string) => (kind === "SQLite" ? file(name) : newDatabase());
    const [source, target] = [await urlOf(from, "a.db"), await urlOf(to, "b.db")];
    await fill(source);

    expect(await call(source, ["backup", saved])).toMatchObject({ exitCode: 0 });
    expect(readdirSync(directory.path)).toContain("saved.db");
    expect(await call(target, ["restore", saved])).toMatchObject({
      exitCode: 0,
      line: expect.stringContaining(`: ${HOSTILE_PLANTS.length} plants, `),
    });
    expect(await exported(target)).toBe(ALL);
    expect(await tokensOf(target)).toEqual(TOKENS);
  });

  test("a snapshot has the plants and tokens of one moment, and servers go on", async () => {
    await using database = await cluster().newDatabase();
    await fill(database.url);
    await database.run(insertOf(...range(10_001, 13_000).map((id) => fern({ id }))));

    await using snapshot = await openSnapshot(parsePostgresUrl(database.url));
    let plants = 0;
    await database.run("DELETE FROM plants WHERE id > 10000");
    for await (const page of snapshot.pages()) {
      if (plants === 0) await database.run(insertOf(fern({ id: 20_001 })));
      plants += page.length;
    }
    expect(plants).toBe(HOSTILE_PLANTS.length + 3_000);
    expect(snapshot.tokens).toEqual(TOKENS);
  });

  test("backup --keep keeps so many dated files, each of them sound", async () => {
    const url = await newDatabase();
    await fill(url);
    for (const day of ["01", "02"])
      writeFileSync(directory.at(`plants-2020-01-${day}T000000Z.db`), "");

    expect(await call(url, ["backup", "--keep", "2", directory.path])).toMatchObject({
      exitCode: 0,
      line: expect.stringMatching(/; deleted plants-2020-01-01T000000Z\.db$/),
    });
    const names = readdirSync(directory.path).toSorted();
    expect(names).toEqual(["plants-2020-01-02T000000Z.db", expect.stringMatching(/^plants-\d/)]);
    expect(await exported(directory.at(names[1] ?? ""))).toBe(ALL);
  });

  test("a standby is backed up, and restored into no more than any other primary", async () => {
    await using stack = new AsyncDisposableStack();
    const primary = stack.use(await startCluster());
    await fill(primary.url("postgres"));
    const standby = stack.use(await startCluster({ primary }));
    const url = standby.url("postgres");
    await untilReplayed(standby, await positionOf(primary));
    await primary.waitForStandby();

    expect(await call(url, ["backup", saved])).toMatchObject({ exitCode: 0 });
    expect(await exported(saved)).toBe(ALL);
    const refusal = {
      exitCode: 1,
      line: expect.stringMatching(
        /^Cannot open database "postgres": .*it is read-only: .* \(25006\)/,
      ),
    };
    expect(await call(url, ["restore", saved])).toEqual(refusal);
    expect(await call(file("new.db"), ["import", url, "--tokens"])).toEqual(refusal);
    expect(await call(file("new.db"), ["import", saved, "--tokens"])).toMatchObject({
      exitCode: 0,
    });
    expect(await exported(file("new.db"))).toBe(ALL);
  });

  describe("restore changes nothing, and says in one line why", () => {
    /** A sound backup, and a database with our tables, which are empty. */
    async function prepare() {
      await fill(file("a.db"));
      await call(file("a.db"), ["backup", saved]);
      const database = await cluster().newDatabase();
      await call(database.url, ["migrate"]);
      return database;
    }
    const none = async (url: string) => {
      expect(await exported(url)).toBe("");
      expect(await tokensOf(url)).toEqual([]);
    };

    test("if there are plants or tokens", async () => {
      await using database = await prepare();
      await database.run(insertOf(fern()));
      const line = (what: string) =>
        `Cannot restore into database "${database.name}": it has ${what} already: create a new database, and restore into that`;
      expect(await call(database.url, ["restore", saved])).toEqual({
        exitCode: 1,
        line: line("plants"),
      });
      expect(await exported(database.url)).toBe(`${jsonOf(fern())}\n`);

      await database.run("DELETE FROM plants");
      await call(database.url, ["token", "create", "phone"]);
      expect(await call(database.url, ["restore", saved])).toEqual({
        exitCode: 1,
        line: line("tokens"),
      });
    });

    test.each([
      ["corrupt", (path: string) => writeFileSync(path, "SQLite format 3\0 and no more")],
      ["missing", () => {}],
    ])("if the backup is %s", async (_, damage) => {
      await using database = await prepare();
      const path = directory.at("bad.db");
      damage(path);
      expect(await call(database.url, ["restore", path])).toEqual({
        exitCode: 1,
        line: expect.stringMatching(/^Cannot (?:restore|open) .*bad\.db/),
      });
      await none(database.url);
    });

    test("if a trigger leaves plants out, which one transaction takes back", async () => {
      await using database = await prepare();
      await database.run(
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        "CREATE TRIGGER skip BEFORE INSERT ON plants FOR EACH ROW WHEN (NEW.id > 5) EXECUTE FUNCTION skip()",
      );
      expect(await call(database.url, ["restore", saved])).toEqual({
        exitCode: 1,
        line: `Cannot restore into database "${database.name}": it stored 10 of 16 plants: drop the trigger that discards rows`,
      });
      await none(database.url);
    });

    test("while another restore runs", async () => {
      await using database = await prepare();
      await using rival = database.connect();
      await rival.unsafe("BEGIN; LOCK TABLE plants, tokens IN EXCLUSIVE MODE").simple();
      expect(await call(database.url, ["restore", saved])).toEqual({
        exitCode: 1,
        line: `Cannot restore into database "${database.name}": another transaction held a lock for too long (55P03)`,
      });
      await rival.unsafe("ROLLBACK");
      await none(database.url);
      expect(await call(database.url, ["restore", saved])).toMatchObject({ exitCode: 0 });
    });

    test("if it is stopped", async () => {
      await using database = await prepare();
      expect(await call(database.url, ["restore", saved], AbortSignal.abort())).toEqual({
        exitCode: 1,
        line: "Stopped: nothing was restored",
      });
      await none(database.url);
    });

    test("if the role may not write", async () => {
      await using database = await prepare();
      await database.run(
        "DO $$ BEGIN CREATE ROLE reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
      );
      const url = database.url.replace("postgres@", "reader@");
      expect(await call(url, ["restore", saved])).toEqual({
        exitCode: 1,
        line: `Cannot restore into database "${database.name}": the user lacks a privilege, or row level security applies to it (42501)`,
      });
      // A backup needs no more.
      expect(await call(url, ["backup", directory.at("as_reader.db")])).toMatchObject({
        exitCode: 0,
      });
    });
  });

  test("plants that Citus has distributed are neither backed up nor restored as PostgreSQL's", async () => {
    await using database = await cluster().newDatabase();
    const { url } = database;
    await call(url, ["migrate"]);
    await fill(file("a.db"));
    await call(file("a.db"), ["backup", saved]);
    await database.run(
      "CREATE FUNCTION citus_truncate_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN END $$",
      "CREATE TRIGGER shards AFTER TRUNCATE ON plants EXECUTE FUNCTION citus_truncate_trigger()",
    );

    const reason = "Citus has distributed its plants: use its URL with the scheme citus";
    for (const [command, doing] of [
      [["backup", directory.at("no.db")], "back up"],
      [["restore", saved], "restore into"],
    ] as const) {
      expect(await call(url, command)).toEqual({
        exitCode: 1,
        line: `Cannot ${doing} database "${database.name}": ${reason}`,
      });
    }
  });

  test("backup makes no file if it is stopped, or if there is no database", async () => {
    const url = await newDatabase();
    expect(await call(url, ["backup", saved])).toEqual({
      exitCode: 1,
      line: expect.stringMatching(/^Cannot back up database "\w+": it has no plant-store tables/),
    });
    await fill(url);
    expect(await call(url, ["backup", saved], AbortSignal.abort())).toEqual({
      exitCode: 1,
      line: "Stopped: no backup was made",
    });
    expect(readdirSync(directory.path)).toEqual([]);
  });
});
