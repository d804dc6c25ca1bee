import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SQL } from "bun";
import { openPostgres } from "../../src/database/postgres/database.ts";
import { parsePostgresUrl } from "../../src/database/postgres/url.ts";
import { missing } from "./missing.ts";
import { asServer, isRoot, NOBODY, PACKAGE, SUPERUSER, templateDirectory } from "./postgres_template.ts";
import { processLock } from "./process_lock.ts";
import { freePort, memoryDirectory } from "./program.ts";

/** A database of the reader's own, to run what needs no more than a database on any PostgreSQL there is. */
const OWN_DATABASE = process.env["TEST_DATABASE_URL"];

/**
 * Whether PostgreSQL cannot be started here: npm has its programs for some systems, and this is for one of them. Says
 * so, for the tests that skip themselves, or fails in CI.
 */
export function skipsCluster(): boolean {
  return !existsSync(PACKAGE) && missing("whatever starts PostgreSQL: npm's programs for it are for Linux on x64");
}

/** Whether there is no database on PostgreSQL, neither a cluster's nor one of the reader's own. */
export function skipsDatabase(): boolean {
  return OWN_DATABASE === undefined && skipsCluster();
}

/** A PostgreSQL with a database for tests; a cluster of its own unless `TEST_DATABASE_URL` names another. */
export async function startDatabase() {
  return OWN_DATABASE === undefined ? await startCluster() : ownDatabase(OWN_DATABASE);
}

/** Test files that use it run one after another: each removes what is in it. */
function ownDatabase(url: string) {
  const lock = processLock(join(tmpdir(), `plant-store-own-database-${process.getuid?.() ?? 0}.lock`));
  const { username, pathname } = new URL(url);
  const client = createClient(() => new SQL({ url, username, database: pathname.slice(1), max: 1, prepare: false }));
  return {
    async emptyDatabase(): Promise<string> {
      await removeTables(client.run);
      return url;
    },
    removeRows: () => client.run(REMOVE_ROWS),
    async [Symbol.asyncDispose]() {
      await client.disconnect();
      lock[Symbol.dispose]();
    },
  };
}

/** Nothing is removed from a database that a plant-store has not made its own. */
async function removeTables(run: Run): Promise<void> {
  const [found] = await run("SELECT to_regclass('plant_store_migrations') IS NOT NULL AS is_ours");
  if (found?.["is_ours"]) await run("DROP TABLE plants, tokens, token_revision, probes, plant_store_migrations");
}

const REMOVE_ROWS = "TRUNCATE plants, tokens, token_revision, probes";

/** How to start a cluster. */
export interface ClusterOptions {
  /** Settings of `postgresql.conf`. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The whole of `pg_hba.conf`. @default everybody on this machine, without a password */
  readonly hba?: string;
  /** The cluster that this one is a standby of. */
  readonly primary?: PostgresCluster;
  /**
   * Where it stores. In memory an fsync costs nothing, and whatever kills processes only leaves the same behind; a
   * benchmark wants the disk. @default "memory"
   */
  readonly disk?: "memory" | "disk";
  /** Files to put into the data directory, by name. */
  readonly files?: Readonly<Record<string, string>>;
}

/** A PostgreSQL that runs; with everything it stored it is gone at the end of the scope. */
export type PostgresCluster = Awaited<ReturnType<typeof startCluster>>;

/** Starts a PostgreSQL of its own on a free port. */
export async function startCluster(options: ClusterOptions = {}) {
  const { hba, primary, files = {}, disk = "memory" } = options;
  let { settings = {} } = options;
  const template = templateDirectory();
  const directory = mkdtempSync(join(disk === "memory" ? memoryDirectory() : tmpdir(), "plant-store-pg-"));
  const reaper = startReaper(directory);
  const data = join(directory, "data");
  cpSync(join(template, "data"), data, { recursive: true });
  if (hba !== undefined) writeFileSync(join(data, "pg_hba.conf"), hba);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(data, name), text, { mode: 0o600 });
  if (primary !== undefined) {
    writeFileSync(join(data, "standby.signal"), "");
    const conninfo = `host=127.0.0.1 port=${primary.port} user=${SUPERUSER} application_name=standby`;
    settings = { primary_conninfo: conninfo, wal_retrieve_retry_interval: "50ms", ...settings };
  }
  configure(data, { ...SETTINGS, ...(disk === "memory" ? IN_MEMORY : {}), ...settings });
  if (isRoot) giveToServer(directory);
  const started = await startOn(freePort, template, data);
  const { port } = started;
  let { server } = started;
  const administrator = createClient(() => connectTo(port, "postgres"));
  let migrated: Promise<void> | undefined;
  let databases = 0;

  return {
    port,
    data,
    /** A client of one connection. */
    connect: () => connectTo(port, "postgres"),
    /** Removes what a plant-store made, and gives the database's URL: much faster than making another. */
    async emptyDatabase(): Promise<string> {
      await removeTables(administrator.run);
      return urlOf(port, "postgres");
    },
    /** Removes what a plant-store stored: much faster than making the tables again. */
    removeRows: () => administrator.run(REMOVE_ROWS),
    /**
     * Makes a database of its own for a test that runs beside others. It is there as long as the cluster.
     *
     * @param options.tables Whether it has a plant-store's tables.
     */
    async newDatabase({ tables = true } = {}) {
      if (tables) await (migrated ??= migrateTemplate(port, administrator.run));
      const name = `plants_${++databases}`;
      const template = tables ? MIGRATED : "template0";
      await administrator.run(`CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY file_copy`);
      const client = createClient(() => connectTo(port, name));
      return {
        name,
        url: urlOf(port, name),
        /** A client of one connection. */
        connect: () => connectTo(port, name),
        /** Runs statements as who may do everything; gives the rows of the last one. */
        run: client.run,
        [Symbol.asyncDispose]: client.disconnect,
      };
    },
    url: (database: string, username = SUPERUSER) => urlOf(port, database, username),
    /** Changes a setting, and waits for all connections to have it. */
    async set(name: string, value: string): Promise<void> {
      await administrator.run(`ALTER SYSTEM SET ${name} = '${value}'`, "SELECT pg_reload_conf()");
      // Who makes a new connection has told the processes that there are; and a checkpoint is made by the one process
      // that says to all whether commits wait for a standby.
      while ((await newSetting(port, name)) !== value) await Bun.sleep(5);
      await administrator.run("CHECKPOINT");
    },
    /** Runs statements as who may do everything; gives the rows of the last one. */
    run: administrator.run,
    /** Ends it as a loss of power to the process would: nothing is written any more. */
    async kill(): Promise<void> {
      await administrator.disconnect();
      await killAll(server, data);
    },
    /** Makes commits wait for its standby, from when it has all that there is. */
    async waitForStandby(): Promise<void> {
      await administrator.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()");
      const isSync = async () =>
        (await administrator.run("SELECT 1 AS one FROM pg_stat_replication WHERE sync_state = 'sync'")).length > 0;
      while (!(await isSync())) await Bun.sleep(10);
    },
    /** Starts it again on the same port, on what is there. */
    async restart(changed: Readonly<Record<string, string>> = {}): Promise<void> {
      configure(data, changed);
      ({ server } = await startOn(() => port, template, data));
    },
    /** The server and its children, as they are now. */
    processes: () => processesOf(data),
    /** Stops every process of it, or lets them go on: to others it looks like a machine that hangs. */
    signalAll: (signal: "SIGSTOP" | "SIGCONT") => signalAll(data, signal),
    async [Symbol.asyncDispose]() {
      await administrator.disconnect();
      signalAll(data, "SIGCONT");
      await reaper.end();
    },
  };
}

/** The database that others are copies of: making the tables takes longer than copying them. */
const MIGRATED = "migrated";

async function migrateTemplate(port: number, run: Run): Promise<void> {
  await run(`CREATE DATABASE ${MIGRATED} STRATEGY file_copy`);
  const database = await openPostgres(parsePostgresUrl(urlOf(port, MIGRATED)));
  await database[Symbol.asyncDispose]();
  // PostgreSQL copies only what nobody is connected to, and looks itself ten times a second.
  const connected = `SELECT pid FROM pg_stat_activity WHERE datname = '${MIGRATED}'`;
  while ((await run(connected)).length > 0) await Bun.sleep(1);
}

/** What every cluster has: nothing that lets a commit be lost. */
const SETTINGS = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  // Small, for there are many clusters; as many connections as PostgreSQL gives by itself.
  shared_buffers: "16MB",
  max_connections: "100",
  log_min_messages: "fatal",
  // A machine that runs tests may be busy: autovacuum and checkpoints are not what they are about.
  autovacuum: "off",
};

/** PostgreSQL's files of shared memory are in the data directory, and are removed with it, also after a SIGKILL. */
const IN_MEMORY = { dynamic_shared_memory_type: "mmap" };

/** The last one of a name counts. */
function configure(data: string, settings: Readonly<Record<string, string>>): void {
  const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`);
  writeFileSync(join(data, "postgresql.auto.conf"), lines.join(""), { flag: "a" });
}

function giveToServer(directory: string): void {
  const { status } = spawnSync("chown", ["-R", `${NOBODY}:${NOBODY}`, directory]);
  if (status !== 0) throw new Error("chown failed");
}

/**
 * Between finding a port and listening on it, and while a cluster is down, another test may be given the port: then the
 * next one is tried, or the same one again.
 */
async function startOn(findPort: () => number, template: string, data: string) {
  for (let triesLeft = 100; ; triesLeft--) {
    const port = findPort();
    configure(data, { port: String(port) });
    try {
      return { server: await startServer(template, data), port };
    } catch (error) {
      if (triesLeft === 0 || !String(error).includes("could not create any TCP/IP sockets")) throw error;
      await Bun.sleep(100);
    }
  }
}

async function startServer(template: string, data: string): Promise<ChildProcess> {
  const server = spawn(join(template, "native/bin/postgres"), ["-D", data], {
    ...asServer,
    env: { PATH: process.env["PATH"] },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  server.stderr.on("data", (chunk) => (log += chunk));
  // The last line of this file says what state it is in.
  while (!/(?:ready|standby)\s*$/.test(readStatus(data))) {
    if (server.exitCode !== null) throw new Error(`PostgreSQL did not start:\n${log}`);
    await Bun.sleep(10);
  }
  return server;
}

function readStatus(data: string): string {
  try {
    return readFileSync(join(data, "postmaster.pid"), "utf8");
  } catch {
    return "";
  }
}

/** Its children would notice a moment later, and until then hold the shared memory that a new one needs. */
async function killAll(server: ChildProcess, data: string): Promise<void> {
  const status = readStatus(data);
  const hasEnded = server.exitCode !== null || server.signalCode !== null;
  const ended = hasEnded ? undefined : new Promise((resolve) => server.once("exit", resolve));
  for (let left = processesOf(data); left.length > 0; left = processesOf(data)) {
    for (const pid of left) sendSignal(pid, "SIGKILL");
    await Bun.sleep(5);
  }
  await ended;
  removeSharedMemory(status);
  rmSync(join(data, "postmaster.pid"), { force: true });
}

/** A server that is killed leaves a System V segment behind, and Linux has 4,096 of them. */
function removeSharedMemory(status: string): void {
  const id = /^ *\d+ +(\d+) *$/m.exec(status)?.[1];
  if (id === undefined) return;
  const { status: exitCode, stderr } = spawnSync("ipcrm", ["--shmem-id", id], { encoding: "utf8" });
  // Meanwhile the server may have ended by itself, and removed it.
  if (exitCode !== 0 && !stderr.includes("invalid id")) throw new Error(`ipcrm failed:\n${stderr}`);
}

/** The server and its children: each works in the data directory. */
function processesOf(data: string): number[] {
  const isIn = (pid: string) => {
    try {
      return readlinkSync(`/proc/${pid}/cwd`) === data;
    } catch {
      return false;
    }
  };
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && isIn(name))
    .map(Number);
}

function signalAll(data: string, signal: NodeJS.Signals): void {
  for (const pid of processesOf(data)) sendSignal(pid, signal);
}

/** It may have ended by itself in the meantime. */
function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

async function newSetting(port: number, name: string): Promise<unknown> {
  const client = createClient(() => connectTo(port, "postgres"));
  const [row] = await client.run(`SELECT current_setting('${name}') AS value`);
  await client.disconnect();
  return row?.["value"];
}

/**
 * Waits for the end of its standard input, stops the server, and removes its directory. An immediate shutdown removes
 * the shared memory, which a SIGKILL leaves behind. A server that is stopped by a signal continues first. A process id
 * may belong to another program by then: only a process that works in the data directory is the server.
 */
const REAPER = `
cat > /dev/null
pid=$(head -n 1 "$0/data/postmaster.pid")
while [ "$(readlink "/proc/$pid/cwd")" = "$0/data" ]; do
  kill -CONT "$pid"
  kill -QUIT "$pid"
  sleep 0.02
done
rm -rf "$0"`;

/**
 * Starts a process that ends the PostgreSQL of a directory, and removes the directory, when `end` is called or this
 * process ends, however it ends: a test run that is killed leaves nothing behind.
 *
 * @param directory The absolute path of the directory that has the data directory, `data`.
 */
function startReaper(directory: string) {
  // In a session of its own: Ctrl-C ends the tests and not the reaper.
  const reaper = spawn("sh", ["-c", REAPER, directory], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  // A program that could not start its cluster ends with its error, and waits for nothing.
  reaper.unref();
  const exited = once(reaper, "exit");
  return {
    async end(): Promise<void> {
      reaper.ref();
      reaper.stdin.end();
      await exited;
    },
  };
}

/** Runs statements one after another, and gives the rows of the last one. */
type Run = (...statements: string[]) => Promise<readonly Record<string, unknown>[]>;

/** The URL of a database on this machine. */
function urlOf(port: number, database: string, username = SUPERUSER): string {
  return `postgres://${username}@127.0.0.1:${port}/${database}`;
}

/** A client of one connection. */
function connectTo(port: number, database: string): SQL {
  // Not prepared: a statement may be run again after the tables were made anew, with other columns.
  return new SQL({ url: urlOf(port, database), username: SUPERUSER, database, max: 1, prepare: false });
}

/** A client on one connection that is kept: a new one costs PostgreSQL more than most statements. */
function createClient(connect: () => SQL) {
  let client: SQL | undefined;
  return {
    /** Runs statements, and gives the rows of the last one. */
    run: (async (...statements) => {
      client ??= connect();
      let rows: readonly Record<string, unknown>[] = [];
      for (const statement of statements) rows = [...(await client.unsafe(statement))];
      return rows;
    }) satisfies Run as Run,
    async disconnect(): Promise<void> {
      await client?.close({ timeout: 0 });
      client = undefined;
    },
  };
}
