import { describe, expect, test } from "bun:test";
import {
  appendFileSync,
  chmodSync,
  closeSync,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";

import { post } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { blocks } from "../support/guides.ts";
import { skipsWithout } from "../support/missing.ts";
import { fern, ivy, jsonOf, membersOf, TEXT } from "../support/plants.ts";
import { INSTALLED, runAsServer, skipsInstalled, startCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, runToEnd, startServer } from "../support/program.ts";

/** The lines of the page about backups, as they stand there. */
const [DUMP = ""] = blocks("Dump", "sh");
const [DAILY = ""] = blocks("Daily dump", "sh");
const [
  RESTORE = "",
  SKIP_CORRUPT = "",
  WITHOUT_PLANTS = "",
  LIST_TOKENS = "",
  RESTORE_PLAIN = "",
  RESTORE_ELSEWHERE = "",
] = blocks("Restore a dump", "sh");
const [DUMP_BEFORE = "", ROLL_BACK = "", SWAP = ""] = blocks("Roll back an upgrade", "sh");
/** The lines that define what the last one, and those of a rollback, run. */
const DEFINITIONS = RESTORE.replace(/.*\n$/, "");
const PLAIN = RESTORE_PLAIN.replace("plants_restored", "plants").replace('"$1"', "plants.sql");

/** An empty database, as on another machine. */
const EMPTY = `dropdb plants\n${blocks("Five minutes", "sh")[0]?.split("\n")[1]}`;

/** A page of PostgreSQL, in bytes. */
const PAGE = 8_192;

/** What is often written instead: the control. */
const CARELESS = "psql --quiet --dbname plants --file plants.sql";

/** What the page's lines use beside PostgreSQL's programs. */
const skips = skipsInstalled() || ["grep", "sed"].some((program) => skipsWithout(program, program));

describe.skipIf(skips)("a dump of PostgreSQL", () => {
  const cluster = withCluster({ programs: INSTALLED });

  /** A database `plants` with a thousand plants, a shell in which the page's lines run, and servers. */
  async function makeWorld() {
    await using stack = new AsyncDisposableStack();
    const directory = stack.use(emptyDirectory());
    const { port, run } = cluster();
    await run(
      "DROP DATABASE IF EXISTS plants",
      "DROP DATABASE IF EXISTS plants_before",
      "DROP ROLE IF EXISTS plants",
      "CREATE ROLE plants LOGIN",
      "CREATE DATABASE plants OWNER plants",
    );

    const address = `plants@127.0.0.1:${port}`;
    const url = `postgres://${address}/plants`;
    const PATH = `${INSTALLED}/bin:${dirname(executable()[0])}:${process.env["PATH"]}`;
    const env = {
      PATH,
      PGHOST: "127.0.0.1",
      PGPORT: String(port),
      PGUSER: "postgres",
      DATABASE_URL: url,
    };
    const here = (script: string) =>
      script
        .replaceAll("plants:PASSWORD@localhost", address)
        .replaceAll("@%2Fvar%2Frun%2Fpostgresql/", `@127.0.0.1:${port}/`)
        // The user of the cluster is in the environment, and the one of SQLite's file is the test's.
        .replaceAll(/sudo -u postgres |runuser -u plant-store -- /g, "")
        .replaceAll(
          /\/(?:usr\/local\/bin|var\/lib\/plant-store|etc\/plant-store)(?=\/)/g,
          directory.path,
        );
    const attempt = (script: string) =>
      runToEnd({
        program: ["sh", "-ec", here(script)],
        cwd: directory.path,
        env,
      });
    const follow = async (script: string) => {
      const { exitCode, stdout, stderr } = await attempt(script);
      expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
      return stdout.trim();
    };

    await follow(`seq 1000 | sed 's/.*/{"id":&,${membersOf(fern())}}/' | plant-store import -`);
    const opened = stack.move();
    return {
      at: (name: string) => join(directory.path, name),
      attempt,
      follow,
      count: (table: string) => follow(`psql -Atc 'SELECT count(*) FROM ${table}' plants`),
      serve: () => startServer({ env: { DATABASE_URL: url } }),
      [Symbol.asyncDispose]: () => opened.disposeAsync(),
    };
  }

  test("restored by the page has every plant, and no token that was ended after it", async () => {
    await using world = await makeWorld();
    const { follow, attempt, count, serve } = world;
    const create = (name: string) => follow(`plant-store token create ${name}`);
    const good = await create("good");
    const ended = [await create("revoked"), await create("deleted"), await create("again")];
    const statuses = async (url: string) =>
      await Promise.all(
        [good, ...ended].map(async (token) => (await post(url, fern(), { token })).status),
      );

    {
      await using server = await serve();
      await follow(DUMP);
      expect(await statuses(server.url)).toEqual([200, 200, 200, 200]);
      // A server that runs keeps its database.
      expect(await world.attempt(RESTORE)).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining("is being accessed by other users"),
      });
    }
    await follow("plant-store token revoke revoked");
    for (const name of ["deleted", "again"]) await follow(`plant-store token delete ${name} --yes`);
    await create("again");
    await follow(`echo '${jsonOf(fern({ id: 1001 }))}' | plant-store import -`);

    // After a failure in the middle, the same lines do it, and nothing was changed until then.
    const broken = RESTORE.replace("AND digest NOT IN", "AND no_such NOT IN");
    expect(await attempt(broken)).toMatchObject({ exitCode: 1 });
    expect(await count("plants")).toBe("1001");
    {
      // The control: without the lines for tokens and plants.
      await follow(`${DEFINITIONS}\ncatch_up() { :; }\nrestore plants.dump "$old"`);
      expect(await count("plants")).toBe("1000");
      await using server = await serve();
      expect(await statuses(server.url)).toEqual([200, 200, 200, 200]);
    }
    await follow(
      "dropdb plants && psql -c 'ALTER DATABASE plants_before RENAME TO plants' postgres",
    );

    const result = await attempt(RESTORE);
    expect(result).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining("1 added, 1,000 already there, 0 refused\n"),
    });
    const [created, revoked = ""] = result.stdout.split(/^ *revoked *\n-+$/m);
    expect(created).toMatch(/^ create_again *\n-+\n again\n/m);
    expect(revoked.match(/^ \w+$/gm)?.toSorted()).toEqual([" again", " deleted", " revoked"]);
    const listed = await follow(LIST_TOKENS);
    expect(Array.from(listed.matchAll(/^(\w+) +(?:active|revoked)/gm), ([row]) => row)).toEqual([
      "good     active",
      "revoked  revoked",
      "deleted  revoked",
      "again    revoked",
    ]);
    expect(await count("plants")).toBe("1001");
    // Once more, they change nothing.
    expect(await attempt(RESTORE)).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('"plants_before" already exists'),
    });

    await using server = await serve();
    expect(await statuses(server.url)).toEqual([200, 401, 401, 401]);
  });

  test("restored beside a database with a corrupt page has the plants of the others, and no token that was ended after it", async () => {
    await using world = await makeWorld();
    const { follow, attempt, count } = world;
    await follow("plant-store token create good; plant-store token create ended");
    await follow(DUMP);
    await follow("plant-store token revoke ended");
    await follow(
      `seq 1001 2000 | sed 's/.*/{"id":&,${membersOf(fern())}}/' | plant-store import -`,
    );
    const tokens = async () => {
      const listed = await follow(LIST_TOKENS);
      return Array.from(listed.matchAll(/^(\w+) +(?:active|revoked)/gm), ([row]) => row);
    };

    const file = await follow("psql -Atc \"SELECT pg_relation_filepath('plants')\" plants");
    await cluster().run("CHECKPOINT");
    await cluster().kill();
    const descriptor = openSync(join(cluster().data, file), "r+");
    // Its first plants are in the dump, too: those of its last page are not.
    const { size } = fstatSync(descriptor);
    writeSync(descriptor, Buffer.alloc(PAGE, 0xff), 0, PAGE, size - 2 * PAGE);
    closeSync(descriptor);
    await cluster().restart();

    const corrupt = { exitCode: 1, stderr: expect.stringContaining("XX001") };
    expect(await attempt(RESTORE)).toMatchObject(corrupt);
    const goBack =
      "dropdb plants && psql -c 'ALTER DATABASE plants_before RENAME TO plants' postgres";
    await follow(`${DEFINITIONS}\n${WITHOUT_PLANTS}`);
    expect(await tokens()).toEqual(["good   active", "ended  revoked"]);
    expect(await count("plants")).toBe("1000");
    await follow(goBack);

    await follow(SKIP_CORRUPT);
    await follow(RESTORE);
    expect(await tokens()).toEqual(["good   active", "ended  revoked"]);
    const restored = Number(await count("plants"));
    expect(restored).toBeGreaterThan(1_000);
    expect(restored).toBeLessThan(2_000);
  });

  test("restored beside the database of an earlier restore changes nothing, and says why", async () => {
    await using world = await makeWorld();
    const { follow, attempt, count } = world;
    await follow(`${DUMP}\ncreatedb plants_before --template plants`);
    await follow("plant-store token create good");
    await follow("psql --command 'DELETE FROM plants WHERE id = 7' plants");

    // Pasted into a shell, which goes on with the next line.
    const all = blocks("Restore a dump", "sh").join("\n");
    const { stderr } = await attempt(`set +e\n${all}`);
    expect(stderr).toContain('database "plants_before" already exists');
    expect(await follow("plant-store token list")).toMatch(/^good +active/m);
    expect(await count("plants")).toBe("999");
  });

  test("is made by the page's script at each run, which keeps fourteen", async () => {
    await using world = await makeWorld();
    const dumps = () => readdirSync(world.at("backups")).toSorted();
    mkdirSync(world.at("backups"));
    const old = Array.from({ length: 13 }, (_, day) => `2020-01-${10 + day}.dump`);
    for (const [day, name] of old.entries()) {
      writeFileSync(world.at(`backups/${name}`), "");
      utimesSync(world.at(`backups/${name}`), day, day);
    }

    const script = DAILY.replace("/var/lib/plant-store-dumps", world.at("backups"));
    const oneAt = (moment: string) => `date() { echo ${moment}; }; ${script}`;
    for (const moment of ["2026-01-01", "2026-01-02"]) await world.follow(oneAt(moment));
    expect(dumps()).toEqual([...old.slice(1), "2026-01-01.dump", "2026-01-02.dump"]);

    // The name is for a dump that is complete.
    const attempt = await world.attempt(
      oneAt("2026-01-03").replace("unchecked plants", "unchecked no_such"),
    );
    expect(attempt.exitCode).toBe(1);
    expect(dumps()).not.toContain("2026-01-03.dump");

    await world.follow(RESTORE.replace("plants.dump", "backups/2026-01-02.dump"));
    expect(await world.count("plants")).toBe("1000");
  });

  test("of before an upgrade, restored by the page, leaves nothing out, and no token is valid again", async () => {
    await using world = await makeWorld();
    const { at, follow, attempt, count } = world;
    await follow("plant-store token create ended");
    await follow(DUMP_BEFORE);
    expect(await attempt(DUMP_BEFORE)).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("before-upgrade.dump"),
    });

    await follow("plant-store token revoke ended");
    await follow(`echo '${jsonOf(ivy({ id: 1001 }))}' | plant-store import -`);
    symlinkSync(executable()[0], at("plant-store.old"));
    const rollBack = `PATH="$PWD:$PATH"\n${DEFINITIONS}\n${ROLL_BACK}`;
    {
      // What a server stored after the export would be lost.
      await using stack = new AsyncDisposableStack();
      stack.use(await world.serve());
      expect(await attempt(rollBack)).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining("is being accessed by other users"),
      });
      expect(readdirSync(at("."))).not.toContain("all.ndjson");
    }

    // A file of an earlier rollback lacks plants.
    writeFileSync(at("all.ndjson"), "");
    expect(await attempt(rollBack)).toMatchObject({ exitCode: 2 });
    expect(await count("plants")).toBe("1001");

    await follow("mv all.ndjson earlier.ndjson");
    expect(await attempt(rollBack)).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining("1 added, 1,000 already there, 0 refused\n"),
    });
    expect(await follow("plant-store token list")).toMatch(/^ended +revoked/m);
    expect(await count("plants")).toBe("1001");
    await follow(SWAP);
    expect(readdirSync(at("."))).not.toContain("plant-store.old");
  });

  test("restored where a server has started changes nothing, and says so", async () => {
    await using world = await makeWorld();
    const { follow, attempt, count, serve } = world;
    await follow(`${DUMP}\npg_dump --file plants.sql plants`);
    await follow(EMPTY);
    const token = await follow("plant-store token create new");
    {
      await using server = await serve();
      expect((await post(server.url, ivy(), { token })).status).toBe(200);
    }

    const stderr = expect.stringMatching(/relation "\w+" already exists/);
    expect(await attempt(RESTORE_ELSEWHERE)).toMatchObject({ exitCode: 1, stderr });
    expect(await attempt(PLAIN)).toMatchObject({ exitCode: 3, stderr });
    expect(await count("plants")).toBe("1");

    // The control: one of a thousand plants, and it succeeds.
    expect(await attempt(CARELESS)).toMatchObject({ exitCode: 0, stderr });
    expect(await count("plants")).toBe("1");
  });

  test("that was cut off is refused, unless it is a plain one", async () => {
    await using world = await makeWorld();
    const { at, follow, attempt, count } = world;
    await follow(`${DUMP}\npg_dump --file plants.sql plants`);
    await follow(EMPTY);

    truncateSync(at("plants.dump"), readFileSync(at("plants.dump")).length - 2_000);
    expect(await attempt(RESTORE_ELSEWHERE)).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("end of file"),
    });
    expect(await follow("psql -Atc '\\d' plants")).not.toContain("plants");

    const text = readFileSync(at("plants.sql"), "utf8");
    writeFileSync(at("plants.sql"), text.slice(0, text.indexOf("\n500\tFern") + 1));
    expect(await attempt(PLAIN)).toMatchObject({ exitCode: 0 });
    expect(await count("plants")).toBe("499");
  });

  test("is not needed to move from SQLite: the copy can be repeated until nothing is missing", async () => {
    await using world = await makeWorld();
    const { follow, attempt, count } = world;
    const [MIGRATE = "", COPY = ""] = blocks("Moving from SQLite", "sh");
    const toSqlite = "plant-store import --database plants.db -";
    await follow('echo "$DATABASE_URL" > /etc/plant-store/database-url');
    await follow(`unset DATABASE_URL\n${MIGRATE}`);
    expect(await follow("plant-store token list")).toMatch(/^NAME +active/m);
    // In another shell, it does not copy into the default database.
    expect(await attempt(`unset DATABASE_URL\n${COPY}`)).toMatchObject({
      stdout: "",
      stderr: expect.stringMatching(/DATABASE_URL: parameter .*not set/),
    });
    const move = () => attempt(COPY);
    await follow("psql --command 'DELETE FROM plants' plants");

    await follow(`seq 500 | sed 's/.*/{"id":&,${membersOf(fern())}}/' | ${toSqlite}`);
    expect(await move()).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining("500 added, 0 already there, 0 refused\n"),
    });
    await follow(`echo '${jsonOf(ivy({ id: 501 }))}' | ${toSqlite}`);
    expect(await move()).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining("1 added, 500 already there, 0 refused\n"),
    });
    expect(await count("plants")).toBe("501");

    // A different plant under a taken id is refused, and the exit code says so.
    await follow(`psql --command "UPDATE plants SET ${TEXT} = 'Moss' WHERE id = 1" plants`);
    expect(await move()).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("0 added, 500 already there, 1 refused\n"),
    });
  });

  test("gives a single plant back that was deleted, and no other", async () => {
    await using world = await makeWorld();
    const { follow, attempt, count } = world;
    const [RESTORE_ONE = ""] = blocks("One plant", "sh");
    const DELETE = "plant-store plant delete 7 --yes > deleted.ndjson";
    await follow(DUMP);

    await follow(DELETE);
    await follow("plant-store plant delete 70 --yes > deleted.ndjson");
    await follow(RESTORE_ONE);
    expect(await count("plants WHERE id = 7")).toBe("1");
    expect(await count("plants")).toBe("999");

    await follow(`${DELETE}\necho '${jsonOf(ivy({ id: 7 }))}' | plant-store import -`);
    expect(await attempt(RESTORE_ONE)).toMatchObject({
      stderr: expect.stringContaining("0 added, 0 already there, 1 refused"),
    });
  });
});

describe.skipIf(skips)("a recovery of PostgreSQL to a point in time", () => {
  test("by the page has every plant, no token that was ended later, and waits for no standby of the primary", async () => {
    using archive = emptyDirectory();
    chmodSync(archive.path, 0o777);
    // A name in the archive is that of a whole file.
    const copy = `cp %p ${archive.path}/part && mv ${archive.path}/part ${archive.path}/%f`;
    const settings = { archive_mode: "on", archive_command: copy };
    await using first = await startCluster({ programs: INSTALLED, settings });
    await using second = await startCluster({ programs: INSTALLED });
    const run = async (line: string, url = first.url("postgres")) => {
      const PATH = `${INSTALLED}/bin:${dirname(executable()[0])}:${process.env["PATH"]}`;
      const result = await runToEnd({
        program: ["sh", "-ec", line],
        cwd: archive.path,
        env: { PATH, DATABASE_URL: url, HOME: archive.path },
      });
      expect(result).toMatchObject({ exitCode: 0 });
      return result;
    };
    const store = (id: number) => run(`echo '${jsonOf(fern({ id }))}' | plant-store import -`);

    await run("plant-store token create kept; plant-store token create ended");
    await first.set("synchronous_standby_names", "ANY 1 (b)");
    await second.kill();
    rmSync(second.data, { recursive: true });
    runAsServer('pg_basebackup -D "$DATA" -d "$URL" -X none -c fast', {
      DATA: second.data,
      URL: `postgres://postgres@127.0.0.1:${first.port}`,
    });
    await first.set("synchronous_standby_names", "");
    await store(1);
    const [row] = await first.run("SELECT now()::text AS moment");
    await run("plant-store token revoke ended");
    await store(2);
    const [last] = await first.run("SELECT pg_walfile_name(pg_switch_wal()) AS segment");
    while (!readdirSync(archive.path).includes(String(last?.["segment"]))) await Bun.sleep(10);

    const settingsOf = join(second.data, "postgresql.auto.conf");
    expect(readFileSync(settingsOf, "utf8")).toContain("ANY 1 (b)");
    const [recovery = ""] = blocks("Point-in-time recovery", "ini");
    appendFileSync(
      settingsOf,
      recovery
        .replace("/archive/", `${archive.path}/`)
        .replace(/2026-\S+ \S+(?=')/, String(row?.["moment"])),
    );
    writeFileSync(join(second.data, "recovery.signal"), "");
    await second.restart();
    while ((await second.run("SELECT pg_is_in_recovery() AS is_so"))[0]?.["is_so"] === true)
      await Bun.sleep(10);

    const variables = `old=postgres://postgres@127.0.0.1:${first.port}/postgres\nnew=postgres://postgres@127.0.0.1:${second.port}/postgres\n`;
    const printed = await run(
      `${DEFINITIONS.replaceAll(/^(?:old|new)=.*\n/gm, "")}${variables}catch_up "$old"`,
    );
    expect(printed.stdout).toContain("\n ended\n");
    expect(printed.stderr).toBe("1 added, 1 already there, 0 refused\n");

    const { stdout } = await run("plant-store token list", second.url("postgres"));
    expect(stdout).toMatch(/^kept +active/m);
    expect(stdout).toMatch(/^ended +revoked/m);
  });
});
