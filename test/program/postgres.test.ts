import { beforeAll, describe, expect, test } from "bun:test";
import { dirname } from "node:path";

import { MIGRATIONS } from "../../src/database/postgres/migrations.ts";
import { bearer, post, TOKEN } from "../support/client.ts";
import { HOSTILE_PLANTS } from "../support/database_fixture.ts";
import { executable } from "../support/executable.ts";
import { blocks, section } from "../support/guides.ts";
import { skipsWithout } from "../support/missing.ts";
import { fern, insertOf, ivy, jsonOf, moss, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import { CONNECT_TIMEOUT, skipsCluster } from "../support/postgres.ts";
import { withCluster } from "../support/postgres_database.ts";
import { emptyDirectory, runToEnd, startServer } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { streamOf } from "../support/stream.ts";
import { runCommand } from "../support/stream_io.ts";

const TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
const UP_TO_DATE = { exitCode: 0, stdout: "", stderr: "Nothing to do: the schema is up to date\n" };

describe.skipIf(skipsCluster())("plant-store on PostgreSQL", () => {
  const cluster = withCluster({
    files: {
      "pg_hba.conf": "host all secret,rotated 127.0.0.1/32 scram-sha-256\nhost all all all trust\n",
    },
  });
  beforeAll(async () => {
    // Building it stops this process, where the deadlines of commands run.
    executable();
    await cluster().run("CREATE ROLE secret LOGIN PASSWORD 'open-sesame'");
  });

  const plantStore = (args: readonly string[], url: string) =>
    runCommand(args, { DATABASE_URL: url });

  /**
   * A database with nothing in it, and what runs a command on it, makes its tables, or imports
   * lines.
   */
  async function emptyDatabase() {
    const database = await cluster().newDatabase();
    const importLines = (lines: string) =>
      runCommand(
        ["import", "-"],
        { DATABASE_URL: database.url },
        { stdin: () => streamOf([lines]) },
      );
    const migrate = async () =>
      expect(await plantStore(["migrate"], database.url)).toMatchObject({
        exitCode: 0,
        stdout: "",
      });

    return {
      ...database,
      importLines,
      migrate,
      plantStore: (...args: string[]) => plantStore(args, database.url),
    };
  }

  test.concurrent(
    "serve stores plants, says what is ready and what there is to watch, and ends cleanly",
    async () => {
      await using database = await emptyDatabase();
      await database.run("GRANT ALL ON SCHEMA public TO secret");
      const url = database.url.replace("postgres@", "secret:open-sesame@");
      const env = { AUTH_TOKENS: TOKEN, DATABASE_URL: url };
      await using server = await startServer({ env });
      const plant = fern({ id: 2n ** 53n + 1n, [OPTIONAL_TEXT]: "🌱" });

      for (const [name, status] of [
        ["Fern", 200],
        ["Fern", 200],
        ["Ivy", 409],
      ] as const) {
        expect((await post(server.url, jsonOf({ ...plant, [TEXT]: name }))).status).toBe(status);
      }

      expect((await fetch(`${server.url}/readyz`)).status).toBe(200);

      const text = await (await fetch(`${server.url}/metrics`, { headers: bearer() })).text();
      // A plant that takes longer than a second has another one opened.
      expect(text).toMatch(/^plant_store_postgres_connections [3-6]$/m);
      expect(text).toContain("plant_store_postgres_reconnections_total 0\n");
      expect(text).toMatch(/^plant_store_postgres_host_in_use\{host="127\.0\.0\.1:\d+"\} 1$/m);

      const namesIn = (document: string) => new Set(document.match(/\bplant_store_postgres_\w+/g));
      expect(namesIn(text)).toEqual(namesIn(section("Metrics")));
      expect(await server.stop()).toBe(0);

      const log = await server.stderr.end;
      expect(log).toContain(`"database":"${database.name}","username":"secret"`);
      expect(log).not.toContain("open-sesame");
      expect(await database.run("SELECT * FROM plants")).toMatchObject([
        { ...plant, id: String(plant.id) },
      ]);
    },
  );

  test.skipIf(skipsWithout("psql", "postgresql-client"))(
    "the guide's GRANTs let a server store plants and change tokens, and only the owner delete plants",
    async () => {
      await using database = await emptyDatabase();
      await database.run(
        "CREATE ROLE owner LOGIN",
        "CREATE ROLE plants LOGIN",
        "GRANT ALL ON SCHEMA public TO owner",
      );
      const [owner, url] = ["owner@", "plants@"].map((role) =>
        database.url.replace("postgres@", role),
      ) as [string, string];
      const [grants = ""] = blocks("Roles and migrations", "sh");
      const script = grants.replace(/(?<=owner=)\S+/, `'${owner}'`);
      const PATH = `${dirname(executable()[0])}:${process.env["PATH"]}`;
      const granted = await runToEnd({ program: ["sh", "-ec", script], env: { PATH } });
      expect(granted).toMatchObject({ exitCode: 0 });

      await using server = await startServer({ env: { AUTH_TOKENS: TOKEN, DATABASE_URL: url } });
      for (const status of [200, 200]) expect((await post(server.url, fern())).status).toBe(status);
      for (const line of ["create a", "revoke a", "delete a --yes", "prune"])
        expect(await plantStore(["token", ...line.split(" ")], url), line).toMatchObject({
          exitCode: 0,
        });

      const deleting = ["plant", "delete", "1", "--yes"];
      expect(await plantStore(deleting, url)).toMatchObject({
        exitCode: 1,
        stderr: expect.stringMatching(/^Cannot delete the plants in [^\n]*\(42501\)[^\n]*\n$/),
      });
      expect(await plantStore(deleting, owner)).toMatchObject({ exitCode: 0 });
    },
  );

  test.concurrent(
    "serve goes on after a rotation of the password in DATABASE_URL_FILE",
    async () => {
      using directory = emptyDirectory();
      await using database = await emptyDatabase();
      await database.run(
        "CREATE ROLE rotated LOGIN PASSWORD 'old-sesame'",
        "GRANT ALL ON SCHEMA public TO rotated",
      );
      const writeUrl = (password: string) =>
        Bun.write(
          directory.at("url"),
          `${database.url.replace("postgres@", `rotated:${password}@`)}\n`,
        );
      await writeUrl("old-sesame");
      const env = {
        AUTH_TOKENS: TOKEN,
        DATABASE_URL_FILE: directory.at("url"),
        REQUEST_TIMEOUT_MS: "1000",
      };
      await using server = await startServer({ env });
      let { status } = await post(server.url, fern());
      while (status === 503) ({ status } = await post(server.url, fern()));
      expect(status).toBe(200);

      await database.run(
        "ALTER ROLE rotated PASSWORD 'new-sesame'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'",
      );
      expect((await post(server.url, moss({ id: 2n }))).status).toBe(503);
      await server.stderr.until(/it rejects this user or password \(28P01\)/);
      await writeUrl("new-sesame");

      while ((await post(server.url, moss({ id: 2n }))).status !== 200);
      expect(await server.stop()).toBe(0);
      expect(await server.stderr.end).not.toContain("sesame");
    },
  );

  test.concurrent(
    "a plant that an operator's constraint or index rejects is a 500, and ends import in one line",
    async () => {
      await using database = await emptyDatabase();
      await database.migrate();
      await database.run(
        `ALTER TABLE plants ADD CONSTRAINT no_fern CHECK ("${TEXT}" <> 'Fern')`,
        `CREATE UNIQUE INDEX one_of_a_name ON plants ("${TEXT}")`,
      );

      const env = { AUTH_TOKENS: TOKEN, DATABASE_URL: database.url };
      await using server = await startServer({ env });
      expect((await post(server.url, moss())).status).toBe(200);

      for (const [name, constraint] of [
        ["Fern", "no_fern"],
        ["Moss", "one_of_a_name"],
      ] as const) {
        const response = await post(server.url, fern({ id: 2n, [TEXT]: name }));
        expect([response.status, await response.json()]).toEqual([
          500,
          expect.objectContaining({ error: 5001 }),
        ]);

        // PostgreSQL says more: "Failing row contains (2, Fern, null)". At the end of the scope no
        // plant may be in the log.
        await server.stderr.until(new RegExp(`"level":"ERROR".*${constraint}`));
      }

      expect(await database.importLines(`${jsonOf(fern())}\n`)).toEqual({
        exitCode: 1,
        stdout: "",
        stderr: 'Cannot add plants: refused by constraint "no_fern" of table "plants" (23514)\n',
      });
    },
  );

  test.concurrent(
    "export and import move plants from SQLite to PostgreSQL and back, byte for byte",
    async () => {
      using directory = emptyDirectory();
      await using database = await emptyDatabase();

      const move = async (args: string[], url: string) => {
        const { exitCode, stdout } = await plantStore(args, url);
        expect(exitCode).toBe(0);
        return stdout;
      };

      const first = `file:${directory.at("first.db")}`;
      const second = `file:${directory.at("second.db")}`;
      const more = range(1_000, 11_000).map((id) => fern({ id, [TEXT]: `plant ${id}` }));
      const last = HOSTILE_PLANTS.findIndex(({ id }) => id > 11_000n);
      const plants = [...HOSTILE_PLANTS.slice(0, last), ...more, ...HOSTILE_PLANTS.slice(last)];
      const file = directory.at("plants.ndjson");

      await Bun.write(file, plants.map((plant) => `${jsonOf(plant)}\n`).join(""));
      await move(["import", file], first);
      const fromSqlite = await move(["export"], first);
      await Bun.write(file, fromSqlite);
      await move(["import", file], database.url);

      expect(await move(["export"], database.url)).toBe(fromSqlite);

      const csv = await move(["export", "--format", "csv"], database.url);
      expect(csv).toBe(await move(["export", "--format", "csv"], first));

      const read = await move(["import", database.url, "--json"], second);
      expect(read).not.toContain("postgres:");
      expect(await move(["export"], second)).toBe(fromSqlite);

      const again = await move(["import", directory.at("second.db"), "--json"], database.url);
      expect(JSON.parse(again)).toMatchObject({ added: 0, present: plants.length, refused: 0 });
      expect(fromSqlite.split("\n").length).toBe(plants.length + 1);
    },
  );

  test.concurrent(
    "import waits for a plant that another transaction holds, and counts each once",
    async () => {
      await using database = await emptyDatabase();
      await database.migrate();
      await using rival = database.connect();
      await rival.unsafe(`BEGIN; ${insertOf(ivy({ id: 2n }))}`).simple();

      const imported = database.importLines(
        `${jsonOf(fern())}\n${jsonOf(moss({ id: 2n }))}\n${jsonOf(ivy({ id: 3n }))}\n`,
      );
      const othersAreStored = "SELECT 1 AS one FROM plants WHERE id <> 2 HAVING count(*) = 2";
      while ((await database.run(othersAreStored)).length === 0) await Bun.sleep(5);
      await rival.unsafe("ROLLBACK");

      expect(await imported).toEqual({
        exitCode: 0,
        stdout: "",
        stderr: "3 added, 0 already there, 0 refused\n",
      });
    },
  );

  test.concurrent("migrate prints the SQL, then applies it, then finds nothing to do", async () => {
    await using database = await emptyDatabase();
    const dry = await database.plantStore("migrate", "--dry-run");
    expect(dry).toMatchObject({
      exitCode: 0,
      stderr: "",
      stdout: expect.stringContaining('CREATE TABLE "plants"'),
    });
    expect(await database.run(TABLES)).toEqual([]);

    const applied = {
      exitCode: 0,
      stdout: "",
      stderr: `Initialized empty database "${database.name}"\n${MIGRATIONS.map(({ tag }) => `Applied ${tag}\n`).join("")}`,
    };
    expect(await database.plantStore("migrate")).toEqual(applied);
    expect(await database.plantStore("migrate")).toEqual(UP_TO_DATE);
    expect(await database.plantStore("migrate", "--dry-run")).toEqual(UP_TO_DATE);
  });

  test.concurrent(
    "in production a server makes no tables, and says what does; elsewhere it warns that it made them",
    async () => {
      await using database = await emptyDatabase();
      const env = { DATABASE_URL: database.url, AUTH_TOKENS: TOKEN };
      const production = { args: ["--port", "0"], env: { ...env, NODE_ENV: "production" } };
      expect(await runToEnd(production)).toEqual({
        exitCode: 1,
        stdout: "",
        stderr: `Cannot open database "${database.name}": it has no plant-store tables; choose another database with --database; for a new one run plant-store migrate --database "$DATABASE_URL"\n`,
      });
      expect(await database.run(TABLES)).toEqual([]);

      const created = [];
      for (const NODE_ENV of ["", "production"]) {
        await using server = await startServer({ env: { ...env, NODE_ENV } });
        expect((await post(server.url, jsonOf(fern()))).status).toBe(200);
        await server.stop();
        created.push(...(await server.stderr.end).matchAll(/^.*"Initialized empty .*$/gm));
      }
      expect(created.map(([line]) => JSON.parse(line))).toMatchObject([
        { level: "INFO", message: `Initialized empty database "${database.name}"` },
      ]);
    },
  );

  test.concurrent.each([
    ["COMMIT", false, 0],
    // What succeeds waits for twice as long as the statement_timeout.
    ["ROLLBACK", true, 600],
  ])(
    "what migrate prints is one transaction for any client, whatever its statement_timeout: %s",
    async (end, isMade, waitMs) => {
      await using database = await emptyDatabase();
      const { stdout } = await database.plantStore("migrate", "--dry-run");
      // A busy machine may need the second for which it waits for a lock.
      const script = stdout.replaceAll(/(?<=lock_timeout = )\d+/g, "60000");
      await using rival = database.connect();
      await rival.unsafe("BEGIN; CREATE TABLE tokens (name text)").simple();

      await using client = database.connect();
      await client.unsafe("SET statement_timeout = '300ms'");

      // On its one connection they run one after another; as with psql, those after one that fails,
      // too.
      const statements = script.split(/;$/m).map((statement) => client.unsafe(statement).simple());
      const applied = Promise.allSettled(statements);
      const waiting = `SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '${database.name}'`;
      const isLong = `${waiting} AND query_start < now() - interval '${waitMs}ms'`;

      const isOver = () => Bun.peek.status(applied) !== "pending";
      while (!isOver() && (await database.run(isLong)).length === 0) await Bun.sleep(20);
      await rival.unsafe(end);
      expect((await applied).every(({ status }) => status === "fulfilled")).toBe(isMade);

      if (isMade) expect(await database.plantStore("migrate")).toEqual(UP_TO_DATE);
      else expect(await database.run(TABLES)).toEqual([{ tablename: "tokens" }]);
    },
  );

  test.concurrent(
    "says in one line that a database is another application's, or a newer plant-store's",
    async () => {
      await using foreign = await emptyDatabase();
      await foreign.run("CREATE TABLE orders (id int)");
      await using newer = await emptyDatabase();
      await newer.migrate();
      await newer.run("INSERT INTO plant_store_migrations VALUES (1, '0001_of_a_later_version')");

      for (const [{ name, plantStore }, reason] of [
        [
          foreign,
          'schema "public" has another application\'s tables: create a database or a schema for plant-store',
        ],
        [newer, "it was made by a newer plant-store"],
      ] as const) {
        for (const args of [["serve", "--port", "0"], ["migrate"], ["export"], ["token", "list"]]) {
          const stderr = `Cannot open database "${name}": ${reason}\n`;
          expect(await plantStore(...args)).toEqual({ exitCode: 1, stdout: "", stderr });
        }
      }

      expect(await foreign.run(TABLES)).toEqual([{ tablename: "orders" }]);
    },
  );

  test.concurrent("says in one line what is wrong with a database, and ends", async () => {
    const { port } = cluster();
    const refused = [
      [
        "postgres://secret:wrong-sesame@db/plants",
        2,
        '"postgres://…": a host on a network needs sslmode',
      ],
      [
        `postgres://secret:wrong-sesame@127.0.0.1:${port}/postgres?${CONNECT_TIMEOUT}`,
        1,
        "it rejects this user or password (28P01)",
      ],
    ] as const;

    await Promise.all(
      refused.map(async ([url, exitCode, line]) => {
        const { stderr, ...ended } = await plantStore(["serve", "--port", "0"], url);
        expect(ended).toEqual({ exitCode, stdout: "" });
        expect(stderr).toMatch(/^[^\n]+\n$/);
        expect(stderr).toContain(line);
        expect(stderr).not.toContain("sesame");
      }),
    );
  });
});
