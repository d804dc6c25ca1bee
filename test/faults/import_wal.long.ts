import { expect, setDefaultTimeout, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { post, TOKEN } from "../support/client.ts";
import { emptyDirectory, runToEnd, LONG_TEST_TIMEOUT_MS, startServer } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/**
 * Twice what the README says, in bytes, because other tests load the machine: 84 to 167 MB were seen. Without the
 * checkpoint that makes the WAL start anew it is 570.
 */
const WAL_BOUND = 256 * 2 ** 20;

/** Each line changes a page, of 4 KB: without the bound the WAL would hold all of them. */
const LINES = 60_000;

test("an import beside a busy server keeps the WAL within its bound, and both store every plant", async () => {
  using directory = emptyDirectory();
  writeFileSync(join(directory.path, "plants.ndjson"), Array.from({ length: LINES }, randomLine).join("\n"));
  await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
  const ended = new AbortController();
  const importing = runToEnd({ cwd: directory.path, args: ["import", "plants.ndjson"] }).finally(() => ended.abort());
  const sizes: number[] = [];
  const statuses = new Set<number>();
  const client = async () => {
    while (!ended.signal.aborted) {
      statuses.add((await post(server.url, JSON.parse(randomLine()))).status);
      sizes.push(statSync(join(directory.path, "plants.db-wal")).size);
    }
  };
  await Promise.all(Array.from({ length: 8 }, client));
  expect(await importing).toMatchObject({
    exitCode: 0,
    stderr: expect.stringContaining(LINES.toLocaleString("en-US")),
  });
  expect([...statuses]).toEqual([200]);
  expect(Math.max(...sizes)).toBeLessThan(WAL_BOUND);
});

/** A plant that fills most of a page, under an id anywhere among the others. */
function randomLine(): string {
  const id = Math.trunc((Math.random() - 0.5) * Number.MAX_SAFE_INTEGER);
  return JSON.stringify({ id, name: "Monstera ".repeat(330) });
}
