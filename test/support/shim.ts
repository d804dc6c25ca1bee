import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

import { TOKEN } from "./client.ts";
import { missing } from "./missing.ts";
import { emptyDirectory, type StartOptions } from "./program.ts";

/** What goes wrong with a disk once a program has started. `shim.c` explains each. */
export interface Faults {
  /** Keeps what a power loss would leave. */
  readonly power?: boolean;
  /** How many of 1000 writes reach the disk before they are synced. */
  readonly writeback?: number;
  readonly seed?: number;
  /** The number of the fsync that fails. */
  readonly failSync?: number;
  /** The number of the fsync before which the program is killed. */
  readonly killSync?: number;
  /** The number of the write to the database itself before which the program is killed. */
  readonly killPage?: number;
  /** How much longer each fsync takes, in milliseconds. */
  readonly syncMs?: number;
  /** The number of the write that fails. */
  readonly failWrite?: number;
  /** How writes fail. @default "EIO" */
  readonly errno?: "EIO" | "ENOSPC" | "EROFS";
}

/**
 * A flag that makes the disk sick while it is raised. The disk itself raises two: `hit` when a fault
 * has happened, and `told` when it has reported to one process an fsync that failed in another.
 */
export type Flag =
  | "hang"
  | "hang-checkpoint"
  | "fail-sync"
  | "fail-write"
  | "fail-checkpoint"
  | "sick"
  | "hit"
  | "told";

/**
 * Whether the shim cannot be used here. Says so, for the tests that skip themselves, or fails in
 * CI.
 */
export function skipsShim(): boolean {
  const reason =
    process.platform === "linux" ? "there is no C compiler (cc)" : "the C shim is for Linux";
  const canRun = process.platform === "linux" && Bun.which("cc") !== null;
  return !canRun && missing(`whatever needs a sick disk: ${reason}`);
}

/** How a program is started on a disk. */
export interface DiskServerOptions {
  readonly faults?: Faults;
  /** More of the environment. */
  readonly env?: Record<string, string>;
  /** @default the executable */
  readonly program?: readonly string[] | undefined;
}

/**
 * A machine that runs tests has a slow disk now and then: the deadlines are for the tests that are
 * about them.
 */
const LONG_DEADLINES = { REQUEST_TIMEOUT_MS: "60000", SHUTDOWN_TIMEOUT_MS: "60000" };

/**
 * A directory for a database, on a disk that does as it is told; without the shim it is a plain
 * directory.
 */
export function makeDisk({ shim }: { readonly shim: boolean }) {
  const directory = emptyDirectory();
  const path = realpathSync(directory.path);
  const library = join(path, "shim.so");
  const flags = join(path, "flags");
  const data = join(path, "data");

  if (shim) build(library);
  for (const folder of [flags, data]) mkdirSync(folder);
  const database = join(data, "plants.db");
  const flagFile = (flag: Flag) => join(flags, flag);
  const preload = { LD_PRELOAD: library, SHIM_DATABASE: database, SHIM_FLAGS: flags };

  return {
    /** The directory of the database. */
    path: data,
    database,
    /** How to start a server on the disk. */
    server: ({ faults = {}, env = {}, program }: DiskServerOptions = {}): StartOptions => ({
      cwd: data,
      args: ["--database", `file:${database}`],
      env: {
        ...LONG_DEADLINES,
        AUTH_TOKENS: TOKEN,
        ...(shim && { ...preload, ...environment(faults) }),
        ...env,
      },
      ...(program && { program }),
    }),
    raise: (flag: Flag) => writeFileSync(flagFile(flag), ""),
    clear: (flag: Flag) => rmSync(flagFile(flag), { force: true }),
    isRaised: (flag: Flag) => existsSync(flagFile(flag)),
    /** Waits until the disk has caused a fault. */
    async hit(): Promise<void> {
      while (!existsSync(flagFile("hit"))) await Bun.sleep(1);
    },

    /** Leaves in each file what was synced. The programs must be dead. */
    losePower: () => losePower(database),
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
}

/** See {@linkcode makeDisk}. */
export type Disk = ReturnType<typeof makeDisk>;

let built: Uint8Array | undefined;

/** One compilation serves every disk of the process. */
function build(library: string): void {
  if (built === undefined) {
    const source = join(import.meta.dir, "shim.c");
    const cc = Bun.spawnSync([
      "cc",
      "-shared",
      "-fPIC",
      "-O2",
      "-o",
      library,
      source,
      "-ldl",
      "-lpthread",
    ]);
    if (cc.exitCode !== 0) throw new Error(`Cannot build the shim: ${cc.stderr.toString()}`);
    built = readFileSync(library);
  }

  writeFileSync(library, built);
}

/** Linux's numbers. */
const ERRNO = { EIO: 5, ENOSPC: 28, EROFS: 30 };

/** `failSync` is `SHIM_FAIL_SYNC`, and so on. */
function environment({ errno, ...faults }: Faults): Record<string, string> {
  const set = Object.entries({ ...faults, errno: errno && ERRNO[errno] }).filter(
    ([, value]) => value,
  );
  const nameOf = (fault: string) => `SHIM_${fault.replace(/[A-Z]/g, "_$&").toUpperCase()}`;
  return Object.fromEntries(set.map(([fault, value]) => [nameOf(fault), String(Number(value))]));
}

function losePower(database: string): void {
  for (const suffix of ["", "-wal", "-journal"]) {
    const file = database + suffix;
    for (const kept of ["nameless", "unlinked", "dirty", "errors"])
      rmSync(`${file}.${kept}`, { force: true });
    if (existsSync(`${file}.durable`)) copyFileSync(`${file}.durable`, file);
    else rmSync(file, { force: true });
  }

  rmSync(`${database}-shm`, { force: true });
}
