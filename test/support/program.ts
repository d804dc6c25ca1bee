import { randomInt } from "node:crypto";
import { chmodSync, existsSync, mkdtempSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { withDeadline } from "../../src/async/timers.ts";
import { executable } from "./executable.ts";
import { skipped } from "./missing.ts";
import { startReaper } from "./reaper.ts";
import { scaled } from "./scale.ts";

/** The time limit of a long test, in milliseconds: it runs for minutes by design. */
export const LONG_TEST_TIMEOUT_MS = 600_000;

/**
 * What a test that starts programs may take, in milliseconds: one that hangs is ended, one on a
 * busy machine is not.
 */
export const TEST_TIMEOUT_MS = scaled(120_000, LONG_TEST_TIMEOUT_MS);

/** The repository's root. */
export const ROOT = join(import.meta.dir, "../..");

/** The program from source, as `bun start` runs it. */
export const FROM_SOURCE = [process.execPath, join(ROOT, "src/main.ts")];

/** The name of the user who runs the tests. */
export const USER = Bun.spawnSync(["id", "-un"]).stdout.toString().trim();

/** Whether processes cannot be inspected here. Says so, for the tests that skip themselves. */
export function skipsProc(): boolean {
  return (
    process.platform !== "linux" &&
    skipped("whatever looks into a process from outside: /proc is Linux's")
  );
}

/** A new empty directory, and paths in it. It is removed at the end of the scope. */
export function emptyDirectory(parent = temporaryDirectory()) {
  const path = mkdtempSync(join(parent, "plant-store-"));
  if (KEEPS_FILES) console.log(`Kept: ${path}`);

  return {
    path,
    at: (name: string) => join(path, name),
    [Symbol.dispose]() {
      if (!KEEPS_FILES) rmSync(path, { recursive: true, force: true });
    },
  };
}

/** Whether to keep the files of tests, for a look at what an experiment left. */
const KEEPS_FILES = process.env["TEST_KEEP"] !== undefined;

/** Where the temporary files of this process are, and those of the programs that it starts. */
export function temporaryDirectory(): string {
  return directoryOfRun(tmpdir());
}

/**
 * Likewise in memory, if there is room. In memory an fsync costs nothing: use it in tests of what
 * is stored, not of how durable it is.
 */
export function memoryDirectory(): string {
  return directoryOfRun(memoryFileSystem());
}

/** A file system in memory, if it is large enough; otherwise that of temporary files. */
export function memoryFileSystem(): string {
  const path = "/dev/shm";
  if (!existsSync(path)) return tmpdir();
  const { bavail, bsize } = statfsSync(path);
  return bavail * bsize > 2 ** 31 ? path : tmpdir();
}

/** By its parent. */
const directoriesOfRun = new Map<string, string>();

/** A directory for everything in it to end with this process: files, and programs that run there. */
function directoryOfRun(parent: string): string {
  return directoriesOfRun.getOrInsertComputed(parent, () => {
    const path = mkdtempSync(join(parent, "plant-store-run-"));
    // Programs of other users have their temporary files there, too.
    chmodSync(path, 0o1777);
    startReaper(path, KEEPS_FILES ? STOP : `${STOP}\nrm -rf "$0"`);
    return path;
  });
}

/** Kills the programs whose working directory is in a directory, and unmounts what is mounted in it. */
const STOP = `
stat -c %N /proc/[0-9]*/cwd 2> /dev/null | while read -r process arrow cwd; do
  case $cwd in
    "'$0"/*)
      process=\${process#"'/proc/"}
      kill -KILL "\${process%%/*}" ;;
  esac
done
cat /proc/mounts 2> /dev/null | while read -r device path rest; do
  case $path in
    "$0"/*) umount -l "$path" ;;
  esac
done`;

/**
 * A port where nothing listens, as long as nobody else takes it. The kernel gives ports from 32768 to
 * connections and to port 0: those of the tests that run at the same time would take it.
 */
export function freePort(): number {
  const port = randomInt(10_000, 32_768);
  try {
    Bun.listen({ hostname: "127.0.0.1", port, socket: { data() {} } }).stop(true);
    return port;
  } catch {
    return freePort();
  }
}

/** How to start the program. */
export interface StartOptions {
  /** The program and its first arguments. @default the executable */
  readonly program?: readonly string[];
  readonly args?: readonly string[];
  /** @default an empty directory, which is gone with the program */
  readonly cwd?: string;
  /** The whole environment, except for PATH and TMPDIR. */
  readonly env?: Record<string, string>;
}

/** Starts the program. At the end of the scope it is killed, and its log searched for secrets. */
export function start({ program = executable(), args = [], cwd, env = {} }: StartOptions) {
  const home = cwd === undefined ? emptyDirectory() : { path: cwd, [Symbol.dispose]() {} };
  const child = Bun.spawn([...program, ...args], {
    cwd: home.path,
    env: { PATH: process.env["PATH"] ?? "", TMPDIR: temporaryDirectory(), ...env },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });

  const stderr = collect(child.stderr);
  return {
    child,
    cwd: home.path,
    stdout: new Response(child.stdout).text(),
    stderr,
    /** Asks a server to stop, and resolves to its exit code. */
    async stop(): Promise<number> {
      child.kill("SIGTERM");
      return await exitCodeOf(child);
    },

    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
      home[Symbol.dispose]();
      assertNoSecrets(await stderr.end, env["AUTH_TOKENS"]);
    },
  };
}

/** Tokens of the program, tokens that the tests made up, and JWTs. */
const SECRET = /plant_[0-9A-Za-z]{38}|-token-0123|\beyJ[\w-]{8}/;

/** The names that the tests give their plants. */
const BODY = /\b(?:Fern|Ivy|Monstera|Moss|plant \d+)\b/;

/**
 * Requires that a log holds no token, and nothing of a body.
 *
 * @param authTokens The tokens that the program was given, as `AUTH_TOKENS` has them.
 * @throws {Error} If it does; the message has the lines.
 */
function assertNoSecrets(log: string, authTokens = ""): void {
  const given = authTokens.split(",").filter((token) => token !== "");
  const leaks = log
    .split("\n")
    // The first start prints its token once, and a curl line that stores a plant with it.
    .filter((line) => !/^ {2}(?:plant_[0-9A-Za-z]{38}$|curl -i http)/.test(line))
    .filter(
      (line) => SECRET.test(line) || BODY.test(line) || given.some((token) => line.includes(token)),
    );
  if (leaks.length > 0) throw new Error(`A token or a body got into the log:\n${leaks.join("\n")}`);
}

/** Runs the program to its end. */
export async function runToEnd(options: StartOptions) {
  await using program = start(options);
  const exitCode = await program.child.exited;
  return { exitCode, stdout: await program.stdout, stderr: await program.stderr.end };
}

/**
 * Starts a server and waits until it listens. It takes a free port unless told otherwise.
 *
 * @throws {Error} If it ends before; the message has its log.
 */
export async function startServer({ args = [], ...options }: StartOptions = {}) {
  const program = start({ args: ["--port", "0", ...args], ...options });
  const [, url = ""] = await program.stderr.until(/listens on (https?:\/\/[^\s",]+)/);
  return { ...program, url };
}

/**
 * Waits for a program to end by itself, and resolves to its exit code.
 *
 * @param limitMs Less than the minute that a server on a sick disk has for its stop (`shim.ts`).
 * @throws {Error} If it still runs after the limit.
 */
export function exitCodeOf(child: Bun.Subprocess, limitMs = 50_000): Promise<number> {
  return withDeadline(child.exited, limitMs, () => {
    throw new Error(`The program still runs after ${limitMs} ms`);
  });
}

function collect(stream: ReadableStream<Uint8Array<ArrayBuffer>>) {
  let text = "";
  let isEnded = false;

  const end = (async () => {
    for await (const piece of stream.pipeThrough(new TextDecoderStream())) text += piece;
    isEnded = true;
    return text;
  })();

  return {
    end,
    /** What came so far. */
    text: () => text,
    /** Waits until what came matches. */
    async until(pattern: RegExp): Promise<RegExpExecArray> {
      for (;;) {
        const match = pattern.exec(text);
        if (match !== null) return match;
        if (isEnded) throw new Error(`The program ended without ${pattern}:\n${text}`);
        await Bun.sleep(2);
      }
    },
  };
}
