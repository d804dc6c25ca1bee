import { expect, setDefaultTimeout, test } from "bun:test";
import { createReadStream, existsSync, readFileSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";

import { repeat } from "../../src/async/timers.ts";
import { bearer, TOKEN } from "../support/client.ts";
import {
  emptyDirectory,
  exitCodeOf,
  freePort,
  FROM_SOURCE,
  runToEnd,
  skipsProc,
  start,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { shell } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const O_NONBLOCK = 0o4000;

/** The flags of an open file, as proc(5) has them. */
function flagsOf(fdinfo: string): number {
  return Number.parseInt(/^flags:\s+(\d+)$/m.exec(fdinfo)?.[1] ?? "", 8);
}

test.concurrent
  .skipIf(skipsProc())
  .each([[["--help"]], [["token", "--helpp"]], [["export"]], [["import", "-", "--json"]]])(
  "%p leaves the pipe that it shares with others as it was",
  async (args) => {
    using home = emptyDirectory();
    const program = shell('{ "$@" < /dev/null; cat /proc/self/fdinfo/2 > flags; } 2>&1 | cat');
    await runToEnd({ program, args, cwd: home.path });

    expect(flagsOf(readFileSync(home.at("flags"), "utf8")) & O_NONBLOCK).toBe(0);
  },
);

test.concurrent.skipIf(skipsProc())(
  "a server leaves the pipes that it shares with others as they were, while it runs",
  async () => {
    await using server = await startServer({ env: { AUTH_TOKENS: TOKEN, ACCESS_LOG: "on" } });
    expect((await fetch(`${server.url}/livez`)).status).toBe(200);
    await server.stderr.until(/Request completed/);

    for (const fd of [1, 2]) {
      const fdinfo = readFileSync(`/proc/${server.child.pid}/fdinfo/${fd}`, "utf8");
      expect(flagsOf(fdinfo) & O_NONBLOCK).toBe(0);
    }
  },
);

test.concurrent(
  "import keeps every message for a reader that pauses, as less does, and the summary",
  async () => {
    using home = emptyDirectory();
    writeFileSync(home.at("bad.ndjson"), '{"id":1}\n'.repeat(9_000));
    const program = shell('"$@" 2>&1 | { sleep 8; cat; }');
    const { stdout } = await runToEnd({ program, args: ["import", "bad.ndjson"], cwd: home.path });

    const [created, ...lines] = stdout.trimEnd().split("\n");
    expect(created).toStartWith("Initialized empty database ");
    expect(lines).toHaveLength(9_001);
    expect(lines.at(-1)).toBe("0 added, 0 already there, 9,000 refused");
  },
);

test.concurrent("a signal ends an import whose messages nobody reads", async () => {
  using home = emptyDirectory();
  writeFileSync(home.at("bad.ndjson"), '{"id":1}\n'.repeat(9_000));
  // Open for reading too, so that writing to it is no error.
  const program = shell('mkfifo messages && exec "$@" 2<> messages');
  await using run = start({ program, args: ["import", "bad.ndjson", "--json"], cwd: home.path });
  while (!existsSync(home.at("plants.db"))) await Bun.sleep(5);

  run.child.kill("SIGTERM");
  expect(await exitCodeOf(run.child)).toBe(1);
  expect(await run.stdout).toBe("");
});

test.concurrent(
  "a server whose log nobody reads answers, drops lines and says how many",
  async () => {
    using home = emptyDirectory();
    const port = freePort();
    const program = shell('mkfifo log && exec "$@" 2<> log');
    await using server = start({
      program,
      args: ["--port", String(port)],
      cwd: home.path,
      env: { AUTH_TOKENS: TOKEN, ACCESS_LOG: "on" },
    });

    let answered = 0;
    const livez = async () => {
      const response = await fetch(`http://127.0.0.1:${port}/livez`).catch(() => undefined);
      if (response?.status === 200) answered++;
      return response?.status;
    };
    while ((await livez()) === undefined) await Bun.sleep(20);

    // A line has 200 bytes or more: this is more than the pipe and the queue take.
    for (let i = 0; i < 80; i++) await Promise.all(Array.from({ length: 100 }, livez));

    const metrics = await fetch(`http://127.0.0.1:${port}/metrics`, { headers: bearer() });
    expect(await metrics.text()).toMatch(/^plant_store_log_lines_lost_total [1-9]\d*$/m);

    let log = "";
    const reader = createReadStream(home.at("log"), "utf8").on("data", (text) => (log += text));
    while (!log.includes("Lost ")) {
      await livez();
      await Bun.sleep(20);
    }

    expect(await server.stop()).toBe(0);
    while (!log.includes('"Stopped"')) await Bun.sleep(20);
    reader.destroy();
    const lines = log.trimEnd().split("\n");
    const written = lines.filter((line) => line.includes('"Request completed"')).length;
    const { lost } = JSON.parse(lines.find((line) => line.includes("Lost ")) ?? "") as {
      lost: number;
    };
    expect(lost).toBeGreaterThan(0);
    // A slow machine has a few lines more to lose, such as those of the integrity check.
    expect(written + lost).toBeGreaterThanOrEqual(answered);
    expect(written + lost).toBeLessThan(answered + 100);
  },
);

test.concurrent(
  "a server whose log is read slowly ends when its time to stop is over",
  async () => {
    using home = emptyDirectory();
    const port = freePort();
    const program = shell('mkfifo log && exec "$@" 2<> log');
    await using server = start({
      program,
      args: ["--port", String(port)],
      cwd: home.path,
      env: { AUTH_TOKENS: TOKEN, ACCESS_LOG: "on", SHUTDOWN_TIMEOUT_MS: "1000" },
    });
    const livez = () => fetch(`http://127.0.0.1:${port}/livez`).catch(() => undefined);
    while ((await livez()) === undefined) await Bun.sleep(20);
    // More than the pipe takes: reading the rest like this takes a minute.
    for (let i = 0; i < 30; i++) await Promise.all(Array.from({ length: 100 }, livez));

    await using log = await open(home.at("log"), "r+");
    using _ = repeat(200, () => log.read(Buffer.alloc(4_096)));
    expect(await server.stop()).toBe(0);
  },
);

test.concurrent.each([
  ["an error that nobody catches", "throw new Error('a bug')"],
  ["a rejection that nobody handles", "Promise.reject(new Error('a bug'))"],
])("%s ends a server with its stack on stderr", async (_, code) => {
  using home = emptyDirectory();
  const preload = home.at("crash.js");
  writeFileSync(preload, `process.on("SIGUSR2", () => setTimeout(() => { ${code} }));`);
  const program = [process.execPath, "--preload", preload, ...FROM_SOURCE.slice(1)];
  await using server = start({ program, args: ["--port", "0"], env: { AUTH_TOKENS: TOKEN } });
  await server.stderr.until(/listens on/);

  server.child.kill("SIGUSR2");

  expect(await exitCodeOf(server.child)).toBe(1);
  expect(await server.stderr.end).toMatch(/error: a bug\n\s+at /);
});
