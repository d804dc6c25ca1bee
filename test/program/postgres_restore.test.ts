import { describe, expect, test } from "bun:test";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  closeSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";

import { post } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { blocks } from "../support/guides.ts";
import { skipped, skipsWithout } from "../support/missing.ts";
import { fern, ivy, jsonOf, membersOf, TEXT } from "../support/plants.ts";
import { INSTALLED, runAsServer, skipsInstalled, startCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, runToEnd, startServer } from "../support/program.ts";

/** The lines of the page about backups, as they stand there. */
const [BACK_UP = ""] = blocks("Back up", "sh");
const [RESTORE = "", IMPORT = "", SKIP_CORRUPT = ""] = blocks("Restore a backup", "sh");
const [IMPORT_FIRST = ""] = blocks("Point-in-time recovery", "sh");

const NOBODY = 65_534;

/** A page of PostgreSQL, in bytes. */
const PAGE = 8_192;

const skips = skipsInstalled() || skipsWithout("sed", "sed");

describe.skipIf(skips)("a backup of PostgreSQL", () => {
  const cluster = withCluster({ programs: INSTALLED });

  /** A database `plants` with a thousand plants, a shell in which the page's lines run, and servers. */
  async function makeWorld() {
    await using stack = new AsyncDisposableStack();
    const directory = stack.use(emptyDirectory());
    const { port, run } = cluster();
    await run(
      "DROP DATABASE IF EXISTS plants",
      "DROP DATABASE IF EXISTS plants_restored",
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
        // The user of the cluster is in the environment.
        .replaceAll("sudo -u postgres ", "")
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
      url: (name: string) => `postgres://${address}/${name}`,
      serve: () => startServer({ env: { DATABASE_URL: url } }),
      [Symbol.asyncDispose]: () => opened.disposeAsync(),
    };
  }

  test("restored by the page has every plant, and no token that was revoked after it", async () => {
    await using world = await makeWorld();
    const { follow, attempt } = world;
    const create = (name: string) => follow(`plant-store token create ${name}`);
    const [good, revoked] = [await create("good"), await create("revoked")];
    const statuses = async (url: string) =>
      await Promise.all(
        [good, revoked].map(async (token) => (await post(url, fern(), { token })).status),
      );

    {
      await using server = await world.serve();
      await follow(BACK_UP);
      expect(await statuses(server.url)).toEqual([200, 200]);
      // Into a database of its own: a server that runs keeps its database.
      await follow(RESTORE);
    }
    await follow("plant-store token revoke revoked");
    await follow(`echo '${jsonOf(fern({ id: 1001 }))}' | plant-store import -`);

    expect(await attempt(IMPORT)).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining("1 added, 1,000 already there, 0 refused\n"),
    });
    expect(await attempt(RESTORE)).toMatchObject({ exitCode: 1 });

    await using server = await startServer({ env: { DATABASE_URL: world.url("plants_restored") } });
    expect(await statuses(server.url)).toEqual([200, 401]);
  });

  test.skipIf(process.getuid?.() !== 0 && skipped("a backup of another user: it needs root"))(
    "by root belongs to the user who owns its directory, and root restores it",
    async () => {
      await using world = await makeWorld();
      chownSync(world.at(""), NOBODY, NOBODY);
      await world.follow(BACK_UP);
      expect(statSync(world.at("copy.db")).uid).toBe(NOBODY);
      await world.follow(RESTORE);
    },
  );

  test("restored beside a database with a corrupt page gets the plants that can be read", async () => {
    await using world = await makeWorld();
    const { follow, attempt } = world;
    await follow(BACK_UP);
    await follow(
      `seq 1001 2000 | sed 's/.*/{"id":&,${membersOf(fern())}}/' | plant-store import -`,
    );

    const file = await follow("psql -Atc \"SELECT pg_relation_filepath('plants')\" plants");
    await cluster().run("CHECKPOINT");
    await cluster().kill();
    const descriptor = openSync(join(cluster().data, file), "r+");
    // Its first plants are in the backup, too: those of its last page are not.
    const { size } = fstatSync(descriptor);
    writeSync(descriptor, Buffer.alloc(PAGE, 0xff), 0, PAGE, size - 2 * PAGE);
    closeSync(descriptor);
    await cluster().restart();

    await follow(RESTORE);
    const corrupt = { exitCode: 1, stderr: expect.stringContaining("XX001") };
    expect(await attempt(IMPORT)).toMatchObject(corrupt);
    await follow(SKIP_CORRUPT);
    await follow(IMPORT);
    const restored = Number(
      await follow("psql -Atc 'SELECT count(*) FROM plants' plants_restored"),
    );
    expect(restored).toBeGreaterThan(1_000);
    expect(restored).toBeLessThan(2_000);
  });

  test("is not needed to move from SQLite: the copy can be repeated until nothing is missing", async () => {
    await using world = await makeWorld();
    const { follow, attempt, count } = world;
    const [SETTINGS = "", COPY = "", START = ""] = blocks("Moving from SQLite", "sh");
    const toSqlite = "plant-store import --database plants.db -";
    await follow("echo DATABASE_URL=file:plants.db > /etc/plant-store/plant-store.env");
    await follow(`${SETTINGS} echo "DATABASE_URL=$DATABASE_URL" > /etc/plant-store/postgres.env`);
    await follow("plant-store token create greenhouse --database plants.db");
    const move = () => attempt(`unset DATABASE_URL\n${COPY}`);
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
    expect(await follow("plant-store token list")).toMatch(/^greenhouse +active/m);

    // A different plant under a taken id is refused, and the exit code says so.
    await follow(`psql --command "UPDATE plants SET ${TEXT} = 'Moss' WHERE id = 1" plants`);
    expect(await move()).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("0 added, 500 already there, 1 refused\n"),
    });

    await follow(`systemctl() { echo "$*"; }\n${START}`);
    expect(
      await follow(
        "unset DATABASE_URL\nplant-store plant get 1 --settings /etc/plant-store/plant-store.env",
      ),
    ).toContain("Moss");
  });
});

const addressOf = ({ port }: { readonly port: number }) => `postgres@127.0.0.1:${port}/postgres`;

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

    const { stderr } = await run(
      IMPORT_FIRST.replace("plants:PASSWORD@first.example.org/plants", addressOf(first)).replace(
        "plants:PASSWORD@second.example.org/plants",
        addressOf(second),
      ),
    );
    expect(stderr).toContain("1 added, 1 already there, 0 refused\n");

    const { stdout } = await run("plant-store token list", second.url("postgres"));
    expect(stdout).toMatch(/^kept +active/m);
    expect(stdout).toMatch(/^ended +revoked/m);
  });
});
