import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { skipped } from "./missing.ts";
import { databaseAt } from "./postgres.ts";
import { emptyDirectory, freePort } from "./program.ts";

/**
 * The coordinator of a Citus cluster, as a superuser, in a database that the tests may empty. Its
 * nodes run on this machine, with two workers or more and `wal_level = logical`.
 */
const { TEST_CITUS_URL } = process.env;

/** Whether there is no cluster. Says so, for the tests that skip themselves. */
export function skipsCitus(): boolean {
  if (TEST_CITUS_URL !== undefined) return false;
  return skipped("Citus: TEST_CITUS_URL names no coordinator, and no package has one");
}

/** A node of the cluster, as `pg_dist_node` has it. */
export interface CitusWorker extends Awaited<ReturnType<typeof serverAt>> {
  /** Its group. */
  readonly id: number;
  readonly port: number;
}

/** A URL of PostgreSQL's as one of Citus. */
export function citusUrl(url: string): string {
  return url.replace("postgres:", "citus:");
}

/** The cluster of `TEST_CITUS_URL`, and the means to disturb it. */
export function citusCluster() {
  const url = new URL(TEST_CITUS_URL as string);
  const database = databaseAt(url.href);
  const { run } = database;

  /** The URL of another server of the cluster. */
  function urlOf(host: string, port: number): string {
    const other = new URL(url);
    other.hostname = host;
    other.port = String(port);
    return other.href;
  }

  async function workers(): Promise<readonly CitusWorker[]> {
    const rows = await run(
      "SELECT groupid, nodename, nodeport FROM pg_dist_node WHERE groupid > 0 AND noderole = 'primary' AND shouldhaveshards ORDER BY groupid",
    );
    return await Promise.all(
      rows.map(async ({ groupid, nodename, nodeport }) => {
        const workerUrl = urlOf(String(nodename), Number(nodeport));
        return { id: Number(groupid), port: Number(nodeport), ...(await serverAt(workerUrl)) };
      }),
    );
  }

  return {
    /** How Plant Store reaches it. */
    url: citusUrl(url.href),
    /** How PostgreSQL's clients reach its coordinator. */
    coordinatorUrl: url.href,
    run,
    urlOf,
    workers,
    coordinator: () => serverAt(url.href),

    /** Distributes the plants, as the page does. */
    distribute: () =>
      run(
        "SELECT create_distributed_table('plants', 'id', shard_count => 4, colocate_with => 'none')",
      ),

    /** Removes what a plant-store made. */
    async empty(): Promise<string> {
      await database.emptyDatabase();
      return citusUrl(url.href);
    },
    /** The first statement after a restart of a worker fails: the session had a connection to it. */
    removeRows: () => database.removeRows().catch(database.removeRows),

    /** Adds a new, empty worker. It is removed at the end of the scope, if it has no shard. */
    async addWorker() {
      const settings = await run(
        `SELECT name, setting FROM pg_settings WHERE name IN (${LIKE_OTHERS.map((name) => `'${name}'`)})`,
      );
      const like = settings.map((row) => `${row["name"]} = '${row["setting"]}'\n`).join("");
      const worker = await newServer(url, async (data, programs, runAs) => {
        const options = ["-U", url.username, "-A", "trust", "-E", "UTF8", "--no-sync"];
        runAs(join(programs, "initdb"), "-D", data, ...options);
        writeFileSync(
          join(data, "postgresql.auto.conf"),
          `${like}shared_buffers = 32MB\nlisten_addresses = '127.0.0.1'\n`,
        );
      });
      const name = url.pathname.slice(1);
      await using maintenance = databaseAt(worker.url.replace(url.pathname, "/postgres"));
      await maintenance.run(`CREATE DATABASE "${name}"`);
      await using fresh = databaseAt(worker.url);
      await fresh.run("CREATE EXTENSION citus");
      await run(`SELECT citus_add_node('127.0.0.1', ${worker.port})`);

      return {
        ...worker,
        async [Symbol.asyncDispose]() {
          await run(`SELECT citus_remove_node('127.0.0.1', ${worker.port})`).catch(() => {});
          worker[Symbol.dispose]();
        },
      };
    },

    /** Makes a synchronous standby of a worker. */
    async addStandby(worker: { readonly url: string }) {
      const standby = await newServer(url, async (data, programs, runAs) => {
        const { hostname, port, username } = new URL(worker.url);
        const source = ["-h", hostname, "-p", port, "-U", username];
        runAs(join(programs, "pg_basebackup"), ...source, "-D", data, "-c", "fast", "--no-sync");
        writeFileSync(join(data, "standby.signal"), "");
        writeFileSync(
          join(data, "postgresql.auto.conf"),
          `primary_conninfo = 'host=${hostname} port=${port} user=${username} application_name=standby'\n`,
          { flag: "a" },
        );
      });
      await using primary = databaseAt(worker.url);
      await primary.run(
        "ALTER SYSTEM SET synchronous_standby_names = 'standby'",
        "SELECT pg_reload_conf()",
      );
      const isSync = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
      while ((await primary.run(isSync)).length === 0) await Bun.sleep(20);
      return standby;
    },

    [Symbol.asyncDispose]: database[Symbol.asyncDispose],
  };
}

/** The settings that a new worker has of the coordinator. */
const LIKE_OTHERS = [
  "shared_preload_libraries",
  "wal_level",
  "max_connections",
  "max_prepared_transactions",
  "citus.node_conninfo",
  "output_plugin_libraries",
];

/** Starts a server of the cluster's own programs on a data directory that `fill` makes. */
async function newServer(
  url: URL,
  fill: (
    data: string,
    programs: string,
    runAs: (program: string, ...args: string[]) => void,
  ) => Promise<void>,
) {
  const { programs, data: like } = await serverAt(url.href);
  const { uid, gid } = statSync(like);
  const directory = emptyDirectory();
  spawnSync("chown", [`${uid}:${gid}`, directory.path]);
  const data = join(directory.path, "data");
  const runAs = (program: string, ...args: string[]) => {
    const { status, stderr } = spawnSync(program, args, { ...asUser(uid, gid), encoding: "utf8" });
    if (status !== 0) throw new Error(`${program} failed: ${stderr}`);
  };

  await fill(data, programs, runAs);
  const port = freePort();
  writeFileSync(
    join(data, "postgresql.auto.conf"),
    `port = ${port}\nunix_socket_directories = ''\nlog_min_messages = fatal\nsynchronous_standby_names = ''\n`,
    { flag: "a" },
  );
  spawnSync("chown", ["-R", `${uid}:${gid}`, directory.path]);
  const own = new URL(url);
  own.hostname = "127.0.0.1";
  own.port = String(port);
  const control = controlOf({ data, programs });
  control.restart();

  return {
    ...control,
    port,
    url: own.href,
    [Symbol.dispose]() {
      control.kill();
      directory[Symbol.dispose]();
    },
  };
}

/** A server that runs on this machine. */
async function serverAt(url: string) {
  await using server = databaseAt(url);
  const [found] = await server.run(
    "SELECT current_setting('data_directory') AS data, (SELECT setting FROM pg_config WHERE name = 'BINDIR') AS programs",
  );
  const { data, programs } = found as { readonly data: string; readonly programs: string };
  return { url, data, programs, ...controlOf({ data, programs }) };
}

function controlOf({ data, programs }: { readonly data: string; readonly programs: string }) {
  const status = join(data, "postmaster.pid");

  return {
    /** Kills it and its children: nothing more is written. */
    kill(): void {
      if (!existsSync(status)) return;
      const pid = Number.parseInt(readFileSync(status, "utf8"));
      const children = `/proc/${pid}/task/${pid}/children`;
      if (!existsSync(children)) return;

      process.kill(pid, "SIGSTOP");
      for (const child of readFileSync(children, "utf8").match(/\d+/g) ?? [])
        process.kill(Number(child), "SIGKILL");
      process.kill(pid, "SIGKILL");
      while (existsSync(children)) Bun.sleepSync(5);
    },

    /** Starts it again on what is there. */
    restart(): void {
      const { uid, gid } = statSync(data);
      const start = ["-D", data, "-l", "/dev/null", "-w", "-t", "60", "start"];
      const options = { ...asUser(uid, gid), stdio: "ignore" } as const;
      const { status: code } = spawnSync(join(programs, "pg_ctl"), start, options);
      if (code !== 0) throw new Error(`pg_ctl start failed for ${data}`);
    },
  };
}

/** How a program of another user is started: in the home of root, libpq looks for a certificate. */
function asUser(uid: number, gid: number) {
  return { uid, gid, cwd: "/", env: { PATH: process.env["PATH"] } };
}
