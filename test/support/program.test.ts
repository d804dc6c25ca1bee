import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";

import { skipsProc, TEST_TIMEOUT_MS } from "./program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/**
 * A test run with a program that has started another one, in a home with a file. It says what is
 * there, and goes on until it is killed.
 */
const TEST_RUN = `
import { start } from ${JSON.stringify(join(import.meta.dir, "program.ts"))};
const script = 'sleep 600 & echo "$(mktemp) $PWD /proc/$$/cwd /proc/$!/cwd " >&2; wait';
const program = start({ program: ["sh", "-c", script] });
console.log((await program.stderr.until(/ $/m)).input);
await new Promise(() => setInterval(() => {}, 1000));`;

// A leak would be noticed by nothing but a machine that is full.
test.skipIf(skipsProc())(
  "a test run that is killed leaves no file, no program, and nothing that a program has started",
  async () => {
    await using run = Bun.spawn([process.execPath, "-e", TEST_RUN], { stderr: "inherit" });
    const { value } = await run.stdout.getReader().read();
    const held = new TextDecoder().decode(value).trim().split(" ");
    expect(held).toEqual([
      expect.stringContaining("/plant-store-run-"),
      expect.stringContaining("/plant-store-run-"),
      expect.stringContaining("/proc/"),
      expect.stringContaining("/proc/"),
    ]);
    expect(held.every(existsSync)).toBe(true);

    run.kill("SIGKILL");
    const deadline = performance.now() + TEST_TIMEOUT_MS / 2;
    while (held.some(existsSync) && performance.now() < deadline) await Bun.sleep(10);

    expect(held.filter(existsSync)).toEqual([]);
  },
);
