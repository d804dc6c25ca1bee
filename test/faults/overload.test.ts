import { expect, setDefaultTimeout, test } from "bun:test";

import { post, TOKEN } from "../support/client.ts";
import { INTACT, printed } from "../support/ledger.ts";
import { limited, printedSeed, randomFrom, randomPlants, startLoad } from "../support/load.ts";
import { fern, membersOf } from "../support/plants.ts";
import { memoryOf } from "../support/proc.ts";
import { skipsProc, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { requireReady, startOnDisk } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const MEGABYTE = 2 ** 20;

test.skipIf(skipsProc())(
  "at five times its capacity a server stores or refuses every plant, in bounded memory",
  async () => {
    const { queueLimit, plants, restMs, mostMegabytes } = scaled(
      { queueLimit: 20, plants: 1_500, restMs: 0, mostMegabytes: 100 },
      { queueLimit: 1_000, plants: 60_000, restMs: 2_000, mostMegabytes: 500 },
    );
    await using server = await startOnDisk({ env: { QUEUE_LIMIT: String(queueLimit) } });
    const { url, disk, ledger } = server;
    const { pid } = server.child;
    const next = randomPlants(randomFrom(printedSeed("overload")), { again: 0, longest: 60_000 });

    await startLoad({ url, connections: 16, ledger, next: limited(next, 1_000) }).end;
    const before = memoryOf(pid).now;
    const load = await startLoad({
      url,
      connections: 5 * queueLimit,
      ledger,
      next: limited(next, plants),
    }).end;
    await Bun.sleep(restMs);

    const memory = memoryOf(pid);
    const [most, after] = [memory.most - before, memory.now - before].map((bytes) =>
      Math.round(bytes / MEGABYTE),
    );
    await requireReady(url, ledger, next);

    const size = `${plants} sent, ${ledger.acknowledgements()} acknowledged, ${JSON.stringify(load.responses)}, memory ${most} MB more at most, ${after} after`;
    expect(printed("overload", size, ledger.judge(disk.database))).toEqual(INTACT);

    const responses = { "200": expect.any(Number), "503/5031": expect.any(Number) };
    expect(load).toEqual({ responses, unanswered: 0, wrong: 0 });
    expect(most).toBeLessThan(mostMegabytes);
    // What the load took comes back.
    expect(after).toBeLessThan(100);
  },
);

// JavaScriptCore makes an array of a thousand elements for each of these objects: 50 MB of a body
// of 60 kB.
test.skipIf(skipsProc())(
  "bodies full of objects that look like large arrays take no more memory than others",
  async () => {
    await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
    const send = async (key: string) => {
      const body = `{"id":1,${membersOf(fern())},"x":[${Array(6_000).fill(`{"${key}":0}`).join()}]}`;
      const responses = await Promise.all(Array.from({ length: 20 }, () => post(server.url, body)));
      expect(responses.map(({ status }) => status)).toEqual(Array(20).fill(200));
    };

    await send("a");
    const { most } = memoryOf(server.child.pid);
    await send("999");
    expect(memoryOf(server.child.pid).most - most).toBeLessThan(50 * MEGABYTE);
  },
);
