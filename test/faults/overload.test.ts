import { expect, setDefaultTimeout, test } from "bun:test";
import { post, TOKEN } from "../support/client.ts";
import { INTACT, printed } from "../support/ledger.ts";
import { emptyDirectory, skipsProc, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { printedSeed } from "../support/load.ts";
import { scaled } from "../support/scale.ts";
import { memoryOf, overload } from "./overload.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const MEGABYTE = 2 ** 20;

test.skipIf(skipsProc())("five times too many plants are stored or refused, in bounded memory", async () => {
  const seed = printedSeed("overload");
  const size = scaled(
    { queueLimit: 20, plants: 1_500, restMs: 0 },
    { queueLimit: 1_000, plants: 60_000, restMs: 2_000 },
  );
  const result = await overload({ ...size, seed });
  expect(printed(result)).toEqual(INTACT);
  const { responses, unanswered, wrong } = result.load;
  expect(Object.keys(responses).toSorted()).toEqual(["200", "503/5031"]);
  expect({ unanswered, wrong }).toEqual({ unanswered: 0, wrong: 0 });
  expect(result.memory.most).toBeLessThan(scaled(100, 500) * MEGABYTE);
  // What the load took comes back.
  expect(result.memory.after).toBeLessThan(100 * MEGABYTE);
});

// JavaScriptCore makes an array of a thousand elements for each of these objects: 50 MB of a body of 60 kB.
test.skipIf(skipsProc())(
  "bodies full of objects that look like large arrays take no more memory than others",
  async () => {
    using directory = emptyDirectory();
    await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
    const send = async (key: string) => {
      const body = `{"id":1,"name":"Fern","x":[${Array(6_000).fill(`{"${key}":0}`).join()}]}`;
      const responses = await Promise.all(Array.from({ length: 20 }, () => post(server.url, body)));
      expect(responses.map(({ status }) => status)).toEqual(Array(20).fill(200));
    };
    await send("a");
    const { most } = memoryOf(server.child.pid);
    await send("999");
    expect(memoryOf(server.child.pid).most - most).toBeLessThan(50 * MEGABYTE);
  },
);
